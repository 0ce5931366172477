//! A server that is gone, and the next one.

use std::time::{Duration, Instant};

use nexus_client::CallError;
use tokio::sync::mpsc::Sender;

use super::{RESTART, Session, failure, warning};
use crate::follow::News;
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
        self.tell_who_waits();
        self.take_back_sending();
        if self.is_stopping {
            self.over = Some(0);
            let mut lines = self.never_sent();
            lines.push(warning("the server has stopped"));
            return lines;
        }
        let (options, news, traced) =
            (self.options.clone(), self.news.clone(), self.traced.clone());
        let Some(own) = self.own.take() else {
            tokio::spawn(async move {
                until_there(|| start::find_again(&options, &traced), &news).await;
            });
            return vec![warning(&format!("{error}; connecting again"))];
        };
        let is_again = self.restarted.is_some_and(|at| at.elapsed() < RESTART);
        self.restarted = Some(Instant::now());
        if is_again {
            self.over = Some(1);
            let mut lines = self.never_sent();
            lines.push(failure("the server ended again; its log is logs/server.log in the home"));
            return lines;
        }
        let cx = self.cx();
        tokio::spawn(async move {
            cx.warn(format!("server ended ({}); starting it again", own.end().await));
            until_there(|| start::find(&options, &traced), &news).await;
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
        self.pump();
        vec![Line::styled(format!("connected again (pid {})", self.info.pid), Style::DIM)]
    }
}

/// Looks for a server until there is one.
async fn until_there<F>(look: impl Fn() -> F, news: &Sender<News>)
where
    F: Future<Output = Result<Found, String>>,
{
    let mut wait = Duration::from_millis(100);
    loop {
        match look().await {
            Ok(found) => {
                let _ = news.send(News::Back(Box::new(found))).await;
                return;
            }
            Err(_) => tokio::time::sleep(wait).await,
        }
        wait = (wait * 2).min(Duration::from_secs(5));
    }
}
