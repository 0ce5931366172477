//! What the scripted model says: Markdown as models write it.

/// A paragraph, a list and code, over and over.
const BLOCK: &str = "\
The turn ends when its tools have ended, so the order of the two writes below does not matter to a reader who comes \
later; it matters to one who watches, and that is why the **first** of them is told before the second. See `turn.rs` \
for the rest of it.

- the store has the message before anybody is told of it
- a watcher that is too slow is told so, and asks again
- nothing is said twice

```rust
pub fn ended(&mut self, status: Status) -> Option<Turn> {
    let turn = self.running.take()?;
    self.watchers.retain(|watcher| watcher.tell(&turn, status).is_ok());
    Some(turn)
}
```

";

/// Text of at least so many bytes.
pub fn markdown(bytes_min: usize) -> String {
    BLOCK.repeat(bytes_min.div_ceil(BLOCK.len()))
}

/// The text in pieces of about the length of a token.
pub fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(' ')
}
