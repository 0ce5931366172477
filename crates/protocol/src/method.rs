//! A method is a type: its name, where it is called, what kind of work it is, and its parameter and result types.

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::once::Once;

/// One method of the interface. Dispatch, validation, JSON Schema, the OpenRPC document, `docs/rpc.md` and the typed
/// client all come from this declaration. Written with [`method!`](crate::method!).
pub trait Method: Send + Sync + 'static {
    const NAME: &'static str;
    const SCOPE: Scope;
    const KIND: Kind;
    /// What it does, for the reference.
    const DOC: &'static str;
    type Params: Serialize + DeserializeOwned + JsonSchema + Send + 'static;
    type Result: Serialize + DeserializeOwned + JsonSchema + Send + 'static;

    /// What its parameters say of being made again; `None` for a call that is carried out each time.
    fn once(_: &Self::Params) -> Option<Once<'_>> {
        None
    }
}

/// Which endpoint a method belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Server,
    /// One agent. Called at server scope, it goes to `params.agent_id` or to the default agent.
    Agent,
}

/// What kind of work a method is. Reads and control never wait behind turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Control,
    Turn,
    /// A read that stays open, and tells what happens until its caller leaves.
    Watch,
}

impl Scope {
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Agent => "agent",
        }
    }
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Control => "control",
            Self::Turn => "turn",
            Self::Watch => "watch",
        }
    }
}

/// Declares a method as an uninhabited type; its doc comment becomes the method's documentation. A method whose
/// parameters may have an `idempotency_key` says where: `, once |params| Some(Once { key: params.key.as_ref()?, … })`.
#[macro_export]
macro_rules! method {
    ($(#[doc = $doc:literal])+ $type:ident = $name:literal, $scope:ident $kind:ident, $params:ty => $result:ty
        $(, once |$given:ident| $once:expr)?) => {
        $(#[doc = $doc])+
        pub enum $type {}
        impl $crate::method::Method for $type {
            const NAME: &'static str = $name;
            const SCOPE: $crate::method::Scope = $crate::method::Scope::$scope;
            const KIND: $crate::method::Kind = $crate::method::Kind::$kind;
            const DOC: &'static str = concat!($($doc, "\n"),+);
            type Params = $params;
            type Result = $result;
            $(
                fn once($given: &$params) -> Option<$crate::once::Once<'_>> {
                    $once
                }
            )?
        }
    };
}
