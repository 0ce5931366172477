//! What every store promises, as tests that any of them can be put to.
//!
//! An implementation says in a [`Place`] how its stores are opened and has all tests made by [`store_contract!`]:
//!
//! ```text
//! nexus_testkit::store_contract!(Home::new());
//! ```
//!
//! Each test has a place of its own. Two stores of one place are two processes on the same data, and dropping one is the
//! death of its process.
//!
//! [`store_contract!`]: crate::store_contract

pub mod agents;
pub mod answers;
pub mod approvals;
pub mod keys;
pub mod leases;
pub mod memories;
pub mod models;
pub mod plans;
pub mod sessions;
pub mod shared_context;

use nexus_core::AgentId;
use nexus_core::store::{AgentQuery, Lease, SessionQuery, Store};

use super::sample::{agent, id, step};

/// Where the stores of one test lie.
pub trait Place {
    type Store: Store;

    /// A new process on the data of this place, of which there is none at first.
    fn open(&self) -> impl Future<Output = Self::Store>;
}

/// Makes a test of each promise. `$place` is an expression that makes a new [`Place`](contract::Place).
///
/// The crate that uses it needs `tokio` with its macros.
#[macro_export]
macro_rules! store_contract {
    ($place:expr) => {
        $crate::store_contract! { $place; models:
            what_was_used_is_kept_and_bequeathed
            what_a_conversation_began_with_is_found
            what_was_shown_comes_back
        }
        $crate::store_contract! { $place; agents:
            a_taken_name_is_refused
            a_permanent_parent_must_be_stored
            an_agent_comes_back_as_it_was_made
            who_is_not_stored_is_nobody
            each_that_had_a_name_is_told_from_the_others
            settings_are_replaced_as_a_whole
            an_append_goes_on_where_the_last_ended
            a_write_is_queued_when_it_is_called
            many_writers_keep_their_order
            progress_is_left_alone_unless_it_is_given
            a_history_is_read_by_range
            without_a_summary_the_window_is_all
            the_window_begins_with_what_was_asked_before_the_summary
            agents_come_by_page
            those_told_to_shut_down_can_be_left_out
            a_line_is_an_agent_with_those_above_and_below
            a_lineage_leads_up_from_the_agent
            descendants_end_with_their_ancestor
            what_was_ended_leaves_nothing_behind
        }
        $crate::store_contract! { $place; leases:
            each_lease_makes_those_before_it_useless
            the_lease_of_an_ended_agent_is_told_from_a_lost_one
            who_lives_elsewhere_is_not_taken
            the_holder_says_where_it_is_reached
            a_family_ends_whole_or_not_at_all
            the_agents_of_a_dead_process_are_taken_over
            a_released_agent_is_anybodys
            a_closed_store_refuses_and_holds_nothing
            what_others_write_is_noticed
            no_lease_is_void_before_its_time
        }
        $crate::store_contract! { $place; sessions:
            a_copy_shares_its_past_and_goes_its_own_way
            a_copy_may_keep_the_beginning_alone
            a_copy_stands_where_its_source_stands
            a_tree_is_counted_with_what_was_saved_of_it
            a_saved_session_is_no_agent_until_it_is_loaded
            an_agent_can_be_loaded_where_it_stands
            what_was_saved_by_name_outlives_its_agent
            a_later_save_replaces_its_copy_and_no_other
            a_name_changes_in_all_that_refers_to_it
            a_child_is_made_beneath_whoever_bears_the_key
            a_temporary_agent_is_settled_with_all_it_said
            sessions_come_by_page_the_last_changed_first
            a_session_is_deleted_saved_or_not
            a_session_is_read_whoever_holds_it
        }
        $crate::store_contract! { $place; memories:
            a_memory_is_seen_in_its_scope_alone
            what_is_an_agents_goes_with_it_and_follows_its_name
            the_same_again_is_a_renewal
            a_renewed_memory_has_as_many_subjects_as_one_may_have
            what_comes_from_elsewhere_costs_nothing_that_is_here
            what_has_expired_is_not_there
            what_expired_is_removed_in_portions
            a_newer_memory_takes_the_place_of_the_older
            what_was_superseded_for_a_while_comes_back
            what_comes_back_is_one_with_what_says_the_same
            a_long_line_of_superseded_memories_goes_with_the_last
            a_scope_takes_what_it_has_room_for
            what_was_superseded_takes_room
            a_new_memory_is_compared_with_few_others
            a_memory_is_found_by_its_words_and_subjects
            a_query_is_data
            a_memory_is_deleted_by_id_or_beginning
            memories_come_the_newest_first
            an_id_that_is_there_changes_nothing
            vectors_are_of_one_model
            what_one_process_adds_the_other_finds
        }
        $crate::store_contract! { $place; plans:
            a_plan_comes_back_as_it_was_made
            how_far_a_plan_got_is_kept
            one_process_runs_a_plan
            plans_come_by_page_the_last_touched_first
            what_nobody_touches_is_removed
            a_tree_keeps_so_many_plans
            a_trees_plans_stay_its_own_under_another_name
        }
        $crate::store_contract! { $place; shared_context:
            a_context_grows_by_its_changes_alone
            a_change_is_refused_at_another_version
            what_is_modified_has_to_be_there
            state_is_patched_and_the_rest_replaced
            the_context_is_bounded
            of_writers_at_one_version_one_writes
            what_one_process_changed_the_other_sees
        }
        $crate::store_contract! { $place; answers:
            a_call_is_begun_once_and_answered_again
            a_call_with_other_parameters_is_told_so
            what_came_to_nothing_may_be_made_again
            what_a_dead_process_began_is_cut_off
            what_was_answered_is_forgotten_in_time
            what_was_cut_off_is_refused_for_as_long
            answers_have_room_for_so_many
        }
        $crate::store_contract! { $place; keys:
            a_key_comes_back_as_it_was_made
            a_name_is_given_once
            there_is_room_for_so_many
            a_key_and_its_agent_are_one_step
        }
        $crate::store_contract! { $place; approvals:
            an_approval_keeps_its_last_status
            who_answered_and_what_was_said_is_kept
            what_a_person_is_shown_is_kept
            only_an_agent_can_ask
            a_grant_and_its_answer_are_one_step
            approvals_end_with_their_agent
            an_approval_waits_in_one_process
            approvals_come_by_page_the_oldest_first
            what_waits_elsewhere_is_found_among_all_the_rest
            a_line_shows_those_of_the_agent_and_beneath
            what_temporary_agents_ask_is_their_processs_alone
            approvals_follow_the_name
        }
    };
    ($place:expr; $part:ident: $($promise:ident)*) => {
        mod $part {
            use super::*;
            $(
                #[tokio::test]
                async fn $promise() {
                    $crate::store::contract::$part::$promise($place).await;
                }
            )*
        }
    };
}

/// An agent that said `words`.
async fn speaking(store: &impl Store, name: &str, words: &[&str]) -> Lease {
    let lease = made(store.create(agent(name)).await);
    made(store.append(lease, step(0, words)).await);
    lease
}

/// The names of all agents.
async fn names(store: &impl Store) -> Vec<AgentId> {
    let query = AgentQuery { after: None, limit: 1000, line_of: None, working: false };
    let page = made(store.agents(query).await);
    page.agents.into_iter().map(|agent| agent.record.id).collect()
}

/// The names of all sessions, the last changed first.
async fn sessions(store: &impl Store) -> Vec<AgentId> {
    let query = SessionQuery { offset: 0, limit: 1000, line_of: None };
    let page = made(store.sessions(query).await);
    page.sessions.into_iter().map(|session| session.record.id).collect()
}

/// What was said in a session, without taking its lease.
async fn texts(store: &impl Store, name: &str) -> Vec<String> {
    let (session, messages) = found(store.read_session(&id(name)).await);
    assert_eq!(session.record.message_count, messages.len() as u64);
    messages.iter().map(|message| message.text().into_owned()).collect()
}

/// What a store answered, which must be no refusal.
#[track_caller]
fn made<T, E: std::fmt::Debug>(answer: Result<T, E>) -> T {
    answer.unwrap_or_else(|error| panic!("refused: {error:?}"))
}

/// What a store found, which must be something.
#[track_caller]
fn found<T, E: std::fmt::Debug>(answer: Result<Option<T>, E>) -> T {
    made(answer).unwrap_or_else(|| panic!("nothing was found"))
}

/// Panics unless a call was refused with the error that is expected.
macro_rules! refused {
    ($answer:expr, $expected:pat $(if $guard:expr)?) => {
        match $answer.map(drop) {
            Err($expected) $(if $guard)? => {}
            other => panic!("{} was answered with {other:?}", stringify!($answer)),
        }
    };
}
use refused;
