//! What a person said to an approval, told to the server.

use nexus_protocol::permission::{ApprovalDecision, RespondApproval, RespondApprovalParams};
use nexus_protocol::{Api, CallError, Target};

/// Whoever was first has decided: that it was somebody else is no failure.
pub async fn respond<A: Api>(person: &A, params: RespondApprovalParams) -> Result<(), CallError> {
    let is_form = params.decision == ApprovalDecision::Accept;
    let left = RespondApprovalParams::new(params.approval_id.as_str(), ApprovalDecision::Cancel);
    let mut answered = person.call::<RespondApproval>(&Target::Server, params).await;
    // A form that is wrong is not asked for again: the host has its own checks, and they were passed over.
    if is_form && matches!(answered, Err(CallError::Rpc(_))) {
        answered = person.call::<RespondApproval>(&Target::Server, left).await;
    }
    match answered {
        // Somebody else was first.
        Ok(_) | Err(CallError::Rpc(_)) => Ok(()),
        Err(error) => Err(error),
    }
}
