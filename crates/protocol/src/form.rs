//! Forms that MCP servers want filled in, field by field, for whoever asks a person.

use serde_json::{Map, Number, Value};

/// The fields of a form, in the server's order.
#[derive(Clone, Debug, PartialEq)]
pub struct Form {
    pub fields: Vec<Field>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    pub name: String,
    /// As a person is shown it.
    pub label: String,
    pub description: Option<String>,
    pub kind: Kind,
    pub required: bool,
    pub default: Option<Value>,
}

/// What can stand in a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    Text,
    Number,
    Integer,
    YesNo,
    One(Vec<Choice>),
    Many(Vec<Choice>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub value: String,
    pub label: String,
}

impl Form {
    /// Of the schema of an approval.
    pub fn of(schema: &Value) -> Self {
        let required: Vec<&str> = list(&schema["required"]).filter_map(Value::as_str).collect();
        let properties = schema["properties"].as_object();
        let field = |(name, schema): (&String, &Value)| Field {
            name: name.clone(),
            label: text(&schema["title"]).unwrap_or_else(|| name.clone()),
            description: text(&schema["description"]),
            kind: Kind::of(schema),
            required: required.contains(&name.as_str()),
            default: schema.get("default").cloned(),
        };
        Self { fields: properties.into_iter().flatten().map(field).collect() }
    }
}

impl Kind {
    fn of(schema: &Value) -> Self {
        match schema["type"].as_str() {
            Some("number") => Self::Number,
            Some("integer") => Self::Integer,
            Some("boolean") => Self::YesNo,
            Some("array") => Self::Many(choices(&schema["items"])),
            _ => match choices(schema) {
                choices if choices.is_empty() => Self::Text,
                choices => Self::One(choices),
            },
        }
    }

    pub fn choices(&self) -> &[Choice] {
        match self {
            Self::One(choices) | Self::Many(choices) => choices,
            _ => &[],
        }
    }

    /// What a person is told to write.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Text => "a text",
            Self::Number => "a number",
            Self::Integer => "a whole number",
            Self::YesNo => "y or n",
            Self::One(_) => "one of them, by its number",
            Self::Many(_) => "any of them, by their numbers: 1,3",
        }
    }
}

impl Field {
    /// What stands in the field when a person writes this; `None` leaves it out. An error says what is wanted.
    pub fn read(&self, written: &str) -> Result<Option<Value>, String> {
        let written = written.trim();
        if written.is_empty() {
            return match self.required && self.default.is_none() {
                true => Err(format!("{} is needed: {}", self.label, self.kind.hint())),
                false => Ok(None),
            };
        }
        let value = match &self.kind {
            Kind::Text => Some(written.into()),
            Kind::Number => number(written),
            Kind::Integer => written.parse::<i64>().ok().map(Value::from),
            Kind::YesNo => yes_or_no(written),
            Kind::One(choices) => chosen(choices, written),
            Kind::Many(choices) => {
                let words = written.split(',').map(|word| chosen(choices, word.trim()));
                words.collect::<Option<Vec<_>>>().map(Value::Array)
            }
        };
        let wanted = || format!("{} is {}", self.label, self.kind.hint());
        value.map(Some).ok_or_else(wanted)
    }

    /// What it has when nothing is written, for a person.
    pub fn default_words(&self) -> Option<String> {
        let words = |value: &Value| match value {
            Value::String(text) => text.clone(),
            Value::Bool(yes) => if *yes { "y" } else { "n" }.into(),
            Value::Array(values) => {
                let words: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
                words.join(",")
            }
            other => other.to_string(),
        };
        self.default.as_ref().map(words)
    }
}

/// A form as it is being filled in, one field after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Filling {
    form: Form,
    at: usize,
    content: Map<String, Value>,
}

impl Filling {
    pub fn new(schema: &Value) -> Self {
        Self { form: Form::of(schema), at: 0, content: Map::new() }
    }

    /// The field that is to be filled in next; none when all are.
    pub fn field(&self) -> Option<&Field> {
        self.form.fields.get(self.at)
    }

    /// Takes what was written for the field, and goes on to the next.
    pub fn take(&mut self, written: &str) -> Result<(), String> {
        let Some(field) = self.form.fields.get(self.at) else { return Ok(()) };
        if let Some(value) = field.read(written)? {
            self.content.insert(field.name.clone(), value);
        }
        self.at += 1;
        Ok(())
    }

    pub fn content(self) -> Map<String, Value> {
        self.content
    }
}

/// In the forms that servers have for them.
fn choices(schema: &Value) -> Vec<Choice> {
    let titled = list(&schema["oneOf"]).chain(list(&schema["anyOf"]));
    let titled = titled.filter_map(|it| {
        let value = text(&it["const"])?;
        Some(Choice { label: text(&it["title"]).unwrap_or_else(|| value.clone()), value })
    });
    let names: Vec<Option<String>> = list(&schema["enumNames"]).map(text).collect();
    let plain = list(&schema["enum"]).enumerate().filter_map(|(at, value)| {
        let value = text(value)?;
        let name = names.get(at).cloned().flatten();
        Some(Choice { label: name.unwrap_or_else(|| value.clone()), value })
    });
    titled.chain(plain).collect()
}

/// By its number, or as it is called.
fn chosen(choices: &[Choice], word: &str) -> Option<Value> {
    let named = choices.iter().find(|it| it.value == word || it.label == word);
    let counted = || choices.get(word.parse::<usize>().ok()?.checked_sub(1)?);
    named.or_else(counted).map(|it| it.value.as_str().into())
}

fn yes_or_no(word: &str) -> Option<Value> {
    match word.to_lowercase().as_str() {
        "y" | "yes" | "true" => Some(true.into()),
        "n" | "no" | "false" => Some(false.into()),
        _ => None,
    }
}

fn number(word: &str) -> Option<Value> {
    let whole = word.parse::<i64>().ok().map(Value::from);
    whole.or_else(|| Number::from_f64(word.parse().ok()?).map(Value::Number))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({"type": "object", "required": ["name", "sure"], "properties": {
            "name": {"type": "string", "title": "Your name", "description": "as in the passport"},
            "age": {"type": "integer", "default": 30},
            "size": {"type": "number"},
            "sure": {"type": "boolean", "default": true},
            "colour": {"type": "string", "oneOf": [
                {"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]},
            "shape": {"type": "string", "enum": ["a", "b"], "enumNames": ["Round", "Square"]},
            "days": {"type": "array", "items": {"enum": ["mon", "tue", "wed"]}},
        }})
    }

    #[track_caller]
    fn check(field: &str, written: &str, expected: Result<Option<Value>, &str>) {
        let form = Form::of(&schema());
        let field = form.fields.iter().find(|it| it.name == field).unwrap();
        let read = field.read(written);
        assert_eq!(read.as_ref().map_err(String::as_str), expected.as_ref().map_err(|it| *it));
    }

    #[test]
    fn fields_are_read_as_their_kind_says() {
        check("name", " Ada ", Ok(Some(json!("Ada"))));
        check("name", "", Err("Your name is needed: a text"));
        check("age", "", Ok(None));
        check("age", "41", Ok(Some(json!(41))));
        check("age", "4.5", Err("age is a whole number"));
        check("size", "4.5", Ok(Some(json!(4.5))));
        check("size", "4", Ok(Some(json!(4))));
        check("size", "NaN", Err("size is a number"));
        check("sure", "", Ok(None));
        check("sure", "No", Ok(Some(json!(false))));
        check("sure", "perhaps", Err("sure is y or n"));
        check("colour", "2", Ok(Some(json!("g"))));
        check("colour", "Red", Ok(Some(json!("r"))));
        check("colour", "3", Err("colour is one of them, by its number"));
        check("colour", "0", Err("colour is one of them, by its number"));
        check("shape", "Square", Ok(Some(json!("b"))));
        check("days", "1, wed", Ok(Some(json!(["mon", "wed"]))));
        check("days", "1,9", Err("days is any of them, by their numbers: 1,3"));
    }

    #[test]
    fn a_form_is_filled_in_field_by_field() {
        let mut filling = Filling::new(&schema());
        assert!(filling.take("").is_err());
        for written in ["Ada", "", "1.5", "", "g", "", "tue"] {
            filling.take(written).unwrap();
        }
        assert_eq!(filling.field(), None);
        let expected = json!({"name": "Ada", "size": 1.5, "colour": "g", "days": ["tue"]});
        assert_eq!(Value::Object(filling.content()), expected);
        assert_eq!(Filling::new(&json!({})).field(), None);
    }
}
