//! Whether an error says that the conversation is longer than the model's window, and how large that is.

/// Codes that say it, in small letters.
const CODES: [&str; 5] = [
    "context_length_exceeded",
    "exceed_context_size_error",
    "model_context_window_exceeded",
    "request_too_large",
    // z.ai's.
    " 1261 ",
];

/// What says it in words, in small letters: pieces that stand in this order.
const PHRASES: [&[&str]; 29] = [
    &["prompt is too long"],
    &["prompt too long"],
    &["prompt exceeds max length"],
    &["input is too long for requested model"],
    &["exceeds the context window"],
    &["exceeds the context limit"],
    &["exceed context limit"],
    &["exceeds", "maximum context length"],
    &["context window exceeded"],
    &["input token count", "exceeds the maximum"],
    &["tokens in request more than max tokens allowed"],
    &["maximum prompt length is"],
    &["reduce the length of the messages"],
    &["maximum context length is"],
    &["exceeds", "maximum allowed input length of"],
    &["longer than the model's context length"],
    &["longer than the context length"],
    &["token", "exceeds the limit of"],
    &["exceeds the available context size"],
    &["greater than the context length"],
    &["context window exceeds limit"],
    &["exceeded model token limit"],
    &["too large for model with", "maximum context length"],
    &["prompt has", "but the configured context size is"],
    &["range of input length should be"],
    &["input length", "exceeds", "context length"],
    &["context length is only"],
    &["too many tokens"],
    &["token limit exceeded"],
];

/// Words of a limit that time lifts. What they speak of is not too long, whatever else is said.
const OF_RATES: [&str; 7] = [
    "rate limit",
    "rate_limit",
    "too many requests",
    "throttl",
    "service unavailable",
    "per minute",
    "please wait",
];

/// What stands before the window's size, in small letters; the first that a number follows counts.
const BEFORE_WINDOW: [&str; 14] = [
    "maximum context length is ",
    "maximum context length of ",
    "maximum prompt length is ",
    "context size is ",
    "context length is only ",
    "maximum allowed input length of ",
    "model with ",
    "model token limit: ",
    "tokens allowed (",
    "context length (",
    "context size (",
    "exceeds the limit of ",
    "input length should be [1, ",
    "> ",
];

/// Sizes that a window may have. Other numbers are something else.
const WINDOWS: std::ops::RangeInclusive<u32> = 256..=100_000_000;

/// Whether codes in small letters or the words of an error say it.
pub(super) fn says(codes: &str, message: &str) -> bool {
    if CODES.iter().any(|code| codes.contains(code)) {
        return true;
    }
    let message = message.to_lowercase();
    let of_rates = OF_RATES.iter().any(|words| message.contains(words) || codes.contains(words));
    !of_rates && (CODES[0..3].iter().any(|code| message.contains(code)) || says_a_phrase(&message))
}

fn says_a_phrase(message: &str) -> bool {
    PHRASES.iter().any(|pieces| {
        let behind =
            |rest: &'_ str, piece: &&str| rest.find(*piece).map(|start| start + piece.len());
        let mut rest = message;
        pieces.iter().all(|piece| match behind(rest, piece) {
            Some(end) => {
                rest = &rest[end..];
                true
            }
            None => false,
        })
    })
}

/// The size of the window, where the words name it.
pub(super) fn window(message: &str) -> Option<u32> {
    let message = message.to_lowercase();
    BEFORE_WINDOW
        .iter()
        .filter_map(|words| message.split_once(words))
        .find_map(|(_, rest)| number(rest))
        .filter(|size| is_window(*size))
}

pub(super) fn is_window(size: u32) -> bool {
    WINDOWS.contains(&size)
}

/// The number a text begins with, which may have its thousands apart.
fn number(text: &str) -> Option<u32> {
    let digits: String = text
        .chars()
        .take_while(|c| c.is_ascii_digit() || matches!(c, ',' | '_'))
        .filter(char::is_ascii_digit)
        .collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_way_to_say_it_is_understood() {
        for (message, size) in [
            ("prompt is too long: 210000 tokens > 200000 maximum", Some(200_000)),
            ("Prompt too long", None),
            ("Prompt exceeds max length", None),
            ("Input is too long for requested model.", None),
            ("Your input exceeds the context window of this model.", None),
            (
                "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
                Some(200_000),
            ),
            ("The input exceeds the model's maximum context length of 8192 tokens", Some(8192)),
            ("Context window exceeded", None),
            (
                "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
                Some(1_048_575),
            ),
            ("tokens in request more than max tokens allowed", None),
            (
                "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
                Some(131_072),
            ),
            ("Please reduce the length of the messages or completion.", None),
            (
                "This model's maximum context length is 128,000 tokens. However, your messages resulted in 140000 tokens.",
                Some(128_000),
            ),
            (
                "Prompt length exceeds the maximum allowed input length of 32768 tokens",
                Some(32_768),
            ),
            (
                "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
                Some(8192),
            ),
            ("prompt token count of 70000 exceeds the limit of 64000", Some(64_000)),
            (
                "the request exceeds the available context size (4096 tokens), try increasing it",
                Some(4096),
            ),
            ("the number of tokens to keep is greater than the context length", None),
            ("invalid params, context window exceeds limit", None),
            ("Your request exceeded model token limit: 262144 (requested: 300000)", Some(262_144)),
            ("Prompt is too large for model with 32768 maximum context length", Some(32_768)),
            ("the prompt has 9000 tokens, but the configured context size is 8192", Some(8192)),
            ("Range of input length should be [1, 98304]", Some(98_304)),
            ("the input length exceeds the context length", None),
            ("the prompt is longer than the context length currently available to the model", None),
            ("model's context length is only 4096 tokens", Some(4096)),
            ("error context_length_exceeded", None),
            ("Too many tokens in the request", None),
            ("token limit exceeded", None),
        ] {
            assert!(says("", message), "{message}");
            assert_eq!(window(message), size, "{message}");
        }
        for code in CODES {
            assert!(says(&format!(" invalid_request_error {code} "), "no"), "{code}");
        }
    }

    #[test]
    fn limits_that_time_lifts_and_other_refusals_are_something_else() {
        for message in [
            "Too many tokens, please wait before trying again.",
            "Rate limit: too many tokens per minute; prompt is too long",
            "Throttled: token limit exceeded",
            "Service unavailable: context window exceeded",
            "image exceeds the limit of 5 MB",
            "max_tokens must be at least 16",
            "the name exceeds 64 characters",
            "",
        ] {
            assert!(!says("", message), "{message}");
        }
        assert!(!says(" rate_limit_error ", "too many tokens"));
    }

    #[test]
    fn a_number_that_is_no_window_is_not_learned() {
        assert_eq!(window("maximum context length is 255 tokens"), None);
        assert_eq!(window("maximum context length is 256 tokens"), Some(256));
        assert_eq!(window("maximum context length is 100000000 tokens"), Some(100_000_000));
        assert_eq!(window("maximum context length is 100000001 tokens"), None);
        assert_eq!(window("maximum context length is 99999999999999 tokens"), None);
        assert_eq!(window("maximum context length is unknown"), None);
    }
}
