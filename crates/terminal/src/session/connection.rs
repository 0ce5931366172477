//! A server that is gone, and the next one.

use std::time::{Duration, Instant};

use nexus_client::CallError;
use tokio::sync::mpsc::{Sender, UnboundedSender};

use super::{RESTART, Session, failure, warning};
use crate::follow::News;
use crate::link::Traced;
use crate::options::Options;
use crate::start::{self, Found};
use crate::style::{Line, Style};

impl Session {
    pub(super) fn lost(&mut self, error: &CallError) -> Vec<Line> {
        if !std::mem::replace(&mut self.is_connected, false) {
            return Vec::new();
        }
        self.watches.drain(..).for_each(|task| task.abort());
        self.stop_showing();
        self.approvals.clear();
        self.sending = None;
        if self.is_stopping {
            self.over = Some(0);
            return vec![warning("the server has stopped")];
        }
        let (options, news, traced) =
            (self.options.clone(), self.news.clone(), self.traced.clone());
        let Some(own) = self.own.take() else {
            tokio::spawn(connect_again(options, news, traced));
            return vec![warning(&format!("{error}; connecting again"))];
        };
        let is_again = self.restarted.is_some_and(|at| at.elapsed() < RESTART);
        self.restarted = Some(Instant::now());
        if is_again {
            self.over = Some(1);
            return vec![failure("the server ended again; its log is logs/server.log in the home")];
        }
        let cx = self.cx();
        tokio::spawn(async move {
            cx.warn(format!("server ended ({}); starting it again", own.end().await));
            connect_again(options, news, traced).await;
        });
        Vec::new()
    }

    pub(super) fn back(&mut self, found: Found) -> Vec<Line> {
        self.link = found.link;
        self.info = found.info;
        self.own = found.own;
        self.is_connected = true;
        self.agents.clear();
        self.watch_all();
        self.watch_shown_again();
        vec![Line::styled(format!("connected again (pid {})", self.info.pid), Style::DIM)]
    }
}

/// Looks for a server until there is one.
async fn connect_again(options: Options, news: Sender<News>, traced: UnboundedSender<Traced>) {
    let mut wait = Duration::from_millis(100);
    loop {
        match start::find(&options, &traced).await {
            Ok(found) => {
                let _ = news.send(News::Back(Box::new(found))).await;
                return;
            }
            Err(_) => tokio::time::sleep(wait).await,
        }
        wait = (wait * 2).min(Duration::from_secs(5));
    }
}
