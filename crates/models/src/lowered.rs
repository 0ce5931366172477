//! Says once of each model that it is asked to think less hard than was wished, since it cannot think so hard.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use nexus_core::model::{Effort, ThinkingKind};
use nexus_core::provider::ModelCall;

/// Models of one provider of which it was said. A server uses a handful; whoever uses more hears it again.
const MODELS_MAX: usize = 256;

#[derive(Default)]
pub(super) struct Lowered {
    said: Mutex<HashSet<Arc<str>>>,
}

impl Lowered {
    pub fn warn(&self, call: &ModelCall) {
        if let Some((asked, known)) = self.news(call) {
            tracing::warn!(
                model = call.model.id,
                asked = asked.name(),
                taken = known.name(),
                "the model does not know this effort and is asked for another"
            );
        }
    }

    /// The effort that was wished, and the one that is asked for instead, where that was not said before.
    fn news(&self, call: &ModelCall) -> Option<(Effort, Effort)> {
        let thinking = &call.model.thinking;
        // Not to think at all is another matter, and what is asked in tokens knows no efforts.
        let asked = call.reasoning.effort().filter(|effort| *effort != Effort::None)?;
        let known = asked.lowered(&thinking.efforts);
        if known == asked || thinking.kind == ThinkingKind::Budget {
            return None;
        }
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= MODELS_MAX {
            said.clear();
        }
        said.insert(call.model.id.as_str().into()).then_some((asked, known))
    }
}

#[cfg(test)]
mod tests {
    use nexus_core::model::{ModelInfo, Reasoning, Thinking};

    use super::*;

    fn call(id: &str, kind: ThinkingKind, efforts: &[Effort], asked: Effort) -> ModelCall {
        let mut model = ModelInfo::undescribed("tests", "chat", id);
        model.thinking = Thinking { kind, efforts: efforts.into(), ..Thinking::default() };
        let reasoning = Reasoning::Asked { effort: Some(asked), budget_tokens: None, shown: true };
        ModelCall { reasoning, ..ModelCall::of(Arc::new(model), []) }
    }

    #[test]
    fn what_is_lowered_is_said_once_for_each_model() {
        use Effort::{High, Low, Max, Medium};
        use ThinkingKind::{Budget, Effort as ByEffort};
        let lowered = Lowered::default();
        let known = [Low, High];
        for (id, kind, efforts, asked, expected) in [
            ("a", ByEffort, &known[..], High, None),
            ("a", ByEffort, &known, Max, Some((Max, High))),
            ("a", ByEffort, &known, Max, None),
            ("a", ByEffort, &known, Medium, None),
            ("b", ByEffort, &known, Medium, Some((Medium, Low))),
            ("c", ByEffort, &[], Max, None),
            ("d", Budget, &known, Max, None),
            ("e", ByEffort, &known, Effort::None, None),
        ] {
            let call = call(id, kind, efforts, asked);
            assert_eq!(lowered.news(&call), expected, "{id}: {asked:?}");
        }
    }

    #[test]
    fn what_was_said_is_forgotten_before_it_grows() {
        let lowered = Lowered::default();
        for count in 0..=MODELS_MAX {
            let call = call(&count.to_string(), ThinkingKind::Effort, &[Effort::Low], Effort::High);
            assert!(lowered.news(&call).is_some(), "{count}");
        }
        assert_eq!(lowered.said.lock().unwrap().len(), 1);
    }
}
