//! The scripted model on threads of its own, so that it neither waits for the load generator nor holds it up.

use nexus_testkit::{Reply, ScriptedModel};
use tokio::runtime::{Builder, Runtime};

pub struct Model {
    scripted: ScriptedModel,
    runtime: Option<Runtime>,
}

impl Model {
    /// A model that answers at once and keeps nothing.
    pub async fn instant(reply: Reply) -> anyhow::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let start = async { ScriptedModel::start().await.without_recording() };
        let scripted = runtime.spawn(start).await?;
        scripted.set_default(reply);
        Ok(Self { scripted, runtime: Some(runtime) })
    }
}

impl std::ops::Deref for Model {
    type Target = ScriptedModel;

    fn deref(&self) -> &ScriptedModel {
        &self.scripted
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
