//! Which server, where `--connect` names none.

use nexus_client::{DiscoveredServer, is_of_this_machine, parse_port_spec};
use tokio::sync::oneshot;

use super::App;
use super::panel::{Asks, Choosing, Panel, Then};
use crate::cx::Chosen;
use crate::follow::News;
use crate::keys::{Code, Key};
use crate::options::ServerChoice;
use crate::start;

/// Short enough for a window of 80 columns.
const TITLE: &str = "Servers: n new here, p new on a port, r replace, s scan ports, u URL, q leave";

impl App {
    /// Lets the person choose among those that were found, or say something else.
    pub(super) fn choose_server(&mut self, servers: Vec<DiscoveredServer>) {
        let is_first = self.servers.is_empty();
        match (servers.is_empty(), is_first) {
            (false, _) => self.servers = servers,
            (true, true) => return self.fail(start::NONE),
            (true, false) => self.hint("no server was found there"),
        }
        self.offer_servers(!is_first);
    }

    /// `is_opened` where the person is choosing already.
    fn offer_servers(&mut self, is_opened: bool) {
        let items = self.servers.iter().enumerate();
        let items = items.map(|(at, server)| format!("{}) {}", at + 1, start::describe(server)));
        let choosing = Choosing::then(Then::Server, TITLE, items.collect());
        self.ask(Panel::Choose(Choosing { is_opened, ..choosing }));
    }

    /// After another question that was left.
    pub(super) fn offer_servers_again(&mut self) {
        self.offer_servers(true);
    }

    pub(super) fn chosen_server(&mut self, chosen: Option<Chosen>) {
        let Some(Chosen::Item(number)) = chosen else { return self.leave_quietly() };
        if let Some(server) = self.servers.get(number) {
            self.connect_to(server.base_url.clone());
        }
    }

    fn connect_to(&mut self, url: String) {
        let token = start::token(&self.options).map(ToOwned::to_owned);
        self.options.server = ServerChoice::At { url, token };
        self.connect();
    }

    /// A key for the list of servers; whether it was one that means something else than a choice.
    pub(super) fn server_key(&mut self, at: usize, key: Key) -> bool {
        let Code::Char(letter) = key.code else { return false };
        if key.ctrl || key.alt || letter.is_ascii_digit() {
            return false;
        }
        let asks = match letter {
            'n' => {
                self.close_panel();
                self.options.server = ServerChoice::Own { port: None };
                self.connect();
                return true;
            }
            'r' => {
                self.close_panel();
                self.ask_to_replace(at);
                return true;
            }
            'q' => {
                self.leave_quietly();
                return true;
            }
            'p' => Asks::Port,
            's' => Asks::Ports,
            'u' => Asks::Url,
            // The list is short, and what is typed here is no filter.
            _ => {
                self.offer_servers_again();
                return true;
            }
        };
        let draft = self.editor.clear();
        self.panel = Some(Panel::Entry { asks, draft });
        true
    }

    /// What was asked for in the place of a choice.
    pub(super) fn server_entered(&mut self, asks: &Asks, text: &str) {
        let refused = match asks {
            Asks::Port => match text.parse::<u16>() {
                Ok(port) if port > 0 => {
                    self.options.server = ServerChoice::Own { port: Some(port) };
                    return self.connect();
                }
                _ => "a port is a number from 1 to 65535".to_owned(),
            },
            Asks::Ports => match parse_port_spec(text) {
                Ok(ports) => {
                    let token = start::token(&self.options).map(ToOwned::to_owned);
                    self.options.server = ServerChoice::Found { ports, token };
                    return self.connect();
                }
                Err(why) => why.to_string(),
            },
            _ => match is_of_this_machine(text) {
                Ok(true) => return self.connect_to(text.to_owned()),
                Ok(false) => "servers are on this machine".into(),
                Err(why) => why,
            },
        };
        self.hint(&refused);
        self.offer_servers_again();
    }

    /// Asks whether that server is to be stopped, and starts one in its place.
    fn ask_to_replace(&mut self, at: usize) {
        let Some(server) = self.servers.get(at) else { return self.offer_servers_again() };
        let (url, port) = (server.base_url.clone(), server.port);
        let agents = server.agents.as_ref().map_or(0, |agents| agents.len());
        let question =
            format!("Stop {url}, with {agents} agents, and start a server in its place?");
        let (reply, answer) = oneshot::channel();
        self.ask(Panel::Confirm { question, reply: Some(reply) });
        let mut options = self.options.clone();
        let (news, traced) =
            (self.channels.news_sender.clone(), self.channels.traced_sender.clone());
        tokio::spawn(async move {
            if !answer.await.unwrap_or(false) {
                let _ = news.send(News::Servers(start::discover(&options).await)).await;
                return;
            }
            let stopped = start::stop(&options, &url, port, &traced).await;
            options.server = ServerChoice::Own { port: Some(port) };
            let told = match stopped {
                Ok(()) => start::find(&options, &traced).await,
                Err(why) => Err(why),
            };
            let told = told.map_or_else(News::NoServer, |found| News::Back(Box::new(found)));
            let _ = news.send(told).await;
        });
    }
}
