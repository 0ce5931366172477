//! The kinds of value a configuration key holds. Each carries its range in its type and names it when it is broken.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{
    Deserialize, Deserializer, Error, IntoDeserializer as _, MapAccess, SeqAccess, Unexpected,
    Visitor,
};
use serde_json::{Map, Value};

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Whole<const MIN: u32, const MAX: u32>(pub u32);

/// A time in seconds, given as a number with or without a fraction, from `MIN_MS` to `MAX_MS` milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Seconds<const MIN_MS: u32, const MAX_MS: u32>(pub Duration);

/// A part of a whole, from `MIN` to `MAX` hundredths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratio<const MIN: u32, const MAX: u32>(pub f64);

/// Dollars for a million tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Dollars(pub f64);

/// A thousand times what the dearest model costs.
const DOLLARS_MAX: f64 = 1_000_000.0;

/// Any object, which means something only to whoever it is sent to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Json(pub Map<String, Value>);

/// A choice between yes and no, or an object that says more.
#[derive(Debug)]
pub(super) enum Switch<T> {
    Plain(bool),
    Options(T),
}

/// A text of one line that is not empty.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Text(pub String);

/// One text, or a list of them, which may be empty.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Several(pub Vec<String>);

/// Longer than any name, address or path that means something.
const TEXT_BYTES_MAX: usize = 4096;

/// The name of a file in a directory that is not named here; never a way out of that directory.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FileName(pub String);

/// One of a few words.
#[derive(Debug)]
pub(super) struct Choice<C>(pub &'static str, PhantomData<C>);

pub(super) trait Choices {
    const ALL: &'static [&'static str];
}

/// A section. serde would fill a struct from a JSON array as well; a list of values without names is refused here.
#[derive(Debug, Default)]
pub(super) struct Object<T>(pub T);

/// A section whose keys are names people choose, in the order of the file. A null removes the entry.
#[derive(Debug)]
pub(super) struct Table<T>(pub Vec<(String, Option<T>)>);

impl<T> Table<T> {
    pub fn into_entries(self) -> impl Iterator<Item = (String, T)> {
        self.0.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }
}

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Whole<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = format!("a whole number from {MIN} to {MAX}");
        let number = deserializer.deserialize_any(NumberVisitor { expected: &expected })?;
        let whole = number.fract() == 0.0 && (f64::from(MIN)..=f64::from(MAX)).contains(&number);
        if !whole {
            return Err(out_of_range(number, &expected));
        }
        // In range, so the conversion is exact.
        Ok(Self(number as u32))
    }
}

impl<'de, const MIN_MS: u32, const MAX_MS: u32> Deserialize<'de> for Seconds<MIN_MS, MAX_MS> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (min, max) = (f64::from(MIN_MS) / 1000.0, f64::from(MAX_MS) / 1000.0);
        let expected = format!("a number of seconds from {min} to {max}");
        let number = deserializer.deserialize_any(NumberVisitor { expected: &expected })?;
        if !(min..=max).contains(&number) {
            return Err(out_of_range(number, &expected));
        }
        Duration::try_from_secs_f64(number).map(Self).map_err(|_| out_of_range(number, &expected))
    }
}

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Ratio<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (min, max) = (f64::from(MIN) / 100.0, f64::from(MAX) / 100.0);
        let expected = format!("a number from {min} to {max}");
        let number = deserializer.deserialize_any(NumberVisitor { expected: &expected })?;
        if !(min..=max).contains(&number) {
            return Err(out_of_range(number, &expected));
        }
        Ok(Self(number))
    }
}

impl<'de> Deserialize<'de> for Dollars {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = format!("a number of dollars from 0 to {DOLLARS_MAX}");
        let number = deserializer.deserialize_any(NumberVisitor { expected: &expected })?;
        if !(0.0..=DOLLARS_MAX).contains(&number) {
            return Err(out_of_range(number, &expected));
        }
        Ok(Self(number))
    }
}

fn out_of_range<E: Error>(number: f64, expected: &str) -> E {
    E::custom(format_args!("{number} is not {expected}"))
}

/// Any JSON number. What is too large to be exact is out of every range there is.
struct NumberVisitor<'a> {
    expected: &'a str,
}

impl Visitor<'_> for NumberVisitor<'_> {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<f64, E> {
        Ok(value as f64)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<f64, E> {
        Ok(value as f64)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<f64, E> {
        Ok(value)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.trim().is_empty() {
            return Err(D::Error::custom("must not be empty"));
        }
        if text.len() > TEXT_BYTES_MAX {
            return Err(D::Error::custom(format_args!("is longer than {TEXT_BYTES_MAX} bytes")));
        }
        if text.chars().any(char::is_control) {
            return Err(D::Error::custom("holds a control character"));
        }
        Ok(Self(text))
    }
}

impl<'de> Deserialize<'de> for Several {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SeveralVisitor;

        impl<'de> Visitor<'de> for SeveralVisitor {
            type Value = Vec<String>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Text::deserialize(text.into_deserializer()).map(|it| vec![it.0])
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut texts = Vec::new();
                while let Some(Text(text)) = list.next_element()? {
                    texts.push(text);
                }
                Ok(texts)
            }
        }

        deserializer.deserialize_any(SeveralVisitor).map(Self)
    }
}

impl<'de> Deserialize<'de> for FileName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Text(name) = Text::deserialize(deserializer)?;
        if name.contains('/') || name == "." || name == ".." || name.len() > 255 {
            return Err(D::Error::custom(format_args!(
                "{name:?} is not a file name (a name without a directory)"
            )));
        }
        Ok(Self(name))
    }
}

impl<'de, C: Choices> Deserialize<'de> for Choice<C> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let word = C::ALL.iter().find(|word| **word == text);
        let error = || D::Error::invalid_value(Unexpected::Str(&text), &OneOf(C::ALL));
        Ok(Self(word.ok_or_else(error)?, PhantomData))
    }
}

struct OneOf(&'static [&'static str]);

impl serde::de::Expected for OneOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one of {}", self.0.join(", "))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_map(ObjectVisitor(PhantomData)).map(Self)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Object(members) = Object::<Map<String, Value>>::deserialize(deserializer)?;
        Ok(Self(members))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Switch<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SwitchVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for SwitchVisitor<T> {
            type Value = Switch<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false or an object")
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
                Ok(Switch::Plain(value))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Switch::Options)
            }
        }

        deserializer.deserialize_any(SwitchVisitor(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TableVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for TableVisitor<T> {
            type Value = Vec<(String, Option<T>)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(entries)
            }
        }

        deserializer.deserialize_map(TableVisitor(PhantomData)).map(Self)
    }
}
