//! A watch from the moment on from which it tells everything.

use nexus_protocol::answer::WatchItem;
use nexus_protocol::api::Happenings as _;
use nexus_protocol::watch::{Event, WatchParams};
use nexus_protocol::{CallError, WatchApi};

/// Opens a watch and hears how things stand. What happens from then on is told.
pub async fn watch<A: WatchApi>(api: &A, params: WatchParams) -> Result<A::Watch, CallError> {
    let mut watch = api.watch(params).await?;
    loop {
        let ended = || CallError::Transport("the watch ended before it began".into());
        match watch.next().await.ok_or_else(ended)?? {
            WatchItem::Event(event) => {
                if let Event::Snapshot(snapshot) = &event.happened.event
                    && !snapshot.more
                {
                    return Ok(watch);
                }
            }
            WatchItem::Done(_) => return Err(ended()),
            WatchItem::Unknown(_) => {}
        }
    }
}
