//! A tool that works on files: what it does blocks, and so runs on a thread of its own.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use nexus_core::permission::ToolClass;
use nexus_core::preview::Preview;
use nexus_core::tool::{Access, Invocation, Need, Tool, ToolOutput};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::files::Files;
use super::sandbox::Launcher;
use super::typed::{TypedTool, tool};

pub(super) trait FileTool: Send + Sync + 'static {
    const NAME: &'static str;
    const DESCRIPTION: &'static str;
    const CLASS: ToolClass;
    type Args: DeserializeOwned + JsonSchema + Send + 'static;
    type Output: Into<ToolOutput> + Send + 'static;

    fn needs(args: &Self::Args) -> Result<Vec<Need>, String>;

    /// What a call would do. It looks and changes nothing; `files` opens what the agent may read without leave.
    fn preview(_args: Self::Args, _files: &Files) -> Option<Preview> {
        None
    }

    /// Blocks. Every path goes through `files`.
    fn run(args: Self::Args, files: &Files) -> Result<Self::Output, String>;
}

pub(super) fn file_tool<T: FileTool>(launcher: &Launcher, image_side_max: u32) -> Arc<dyn Tool> {
    tool(OnThread::<T> { launcher: launcher.clone(), image_side_max, tool: PhantomData })
}

struct OnThread<T> {
    launcher: Launcher,
    image_side_max: u32,
    tool: PhantomData<T>,
}

#[async_trait]
impl<T: FileTool> TypedTool for OnThread<T> {
    const NAME: &'static str = T::NAME;
    const DESCRIPTION: &'static str = T::DESCRIPTION;
    const CLASS: ToolClass = T::CLASS;
    type Args = T::Args;
    type Output = ToolOutput;

    fn needs(&self, args: &T::Args) -> Result<Vec<Need>, String> {
        T::needs(args)
    }

    async fn preview(&self, args: T::Args, access: Access) -> Option<Preview> {
        let (launcher, side_max) = (self.launcher.clone(), self.image_side_max);
        let work = move |stop| Ok(T::preview(args, &Files::new(access, stop, launcher, side_max)));
        on_thread(work, std::future::pending()).await.ok().flatten()
    }

    async fn run(&self, args: T::Args, call: Invocation) -> Result<ToolOutput, String> {
        let (access, launcher, side_max) =
            (call.access, self.launcher.clone(), self.image_side_max);
        // To look where blocked paths lead touches the disk too.
        let seen = T::CLASS == ToolClass::Write && call.onlookers.want_changes();
        let work = move |stop| {
            let files = Files::new(access, stop, launcher, side_max).seen(seen);
            let output: ToolOutput = T::run(args, &files)?.into();
            Ok(ToolOutput { change: files.change(), ..output })
        };
        on_thread(work, call.cancel.cancelled()).await
    }
}

/// Runs `work`, which blocks, on a thread of its own. It is told to end when `cancelled` says so, and when nobody waits
/// for it any more.
pub(super) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce(Arc<AtomicBool>) -> Result<T, String> + Send + 'static,
    cancelled: impl Future<Output = ()>,
) -> Result<T, String> {
    let stop = StopOnDrop::default();
    let stopped = stop.0.clone();
    let mut work = tokio::task::spawn_blocking(move || work(stopped));
    let done = tokio::select! {
        biased;
        done = &mut work => done,
        () = cancelled => {
            drop(stop);
            work.await
        }
    };
    done.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Err("the server is stopping".into()),
    })
}

/// A thread cannot be ended from outside. When the call is cancelled, and also when its future is dropped, this tells it
/// to end itself.
#[derive(Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
