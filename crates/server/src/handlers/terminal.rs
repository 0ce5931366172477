//! What the terminal asks that started this server.

use nexus_protocol::RpcError;
use nexus_protocol::params::NoParams;
use nexus_protocol::terminal::{
    TerminalDone, TerminalHello, TerminalHelloResult, TerminalLeave, TerminalLeaveParams,
    TerminalStay,
};

use crate::cx::Cx;
use crate::dispatcher::Table;
use crate::terminal::{Terminal, Wish};

pub fn register(table: &mut Table) {
    table.on_terminal::<TerminalHello, _, _>(hello);
    table.on_terminal::<TerminalStay, _, _>(stay);
    table.on_terminal::<TerminalLeave, _, _>(leave);
}

async fn hello(cx: Cx, _: NoParams) -> Result<TerminalHelloResult, RpcError> {
    Ok(terminal(&cx)?.hello.clone())
}

async fn stay(cx: Cx, _: NoParams) -> Result<TerminalDone, RpcError> {
    terminal(&cx)?.wish(Wish::Stay);
    Ok(TerminalDone {})
}

async fn leave(cx: Cx, params: TerminalLeaveParams) -> Result<TerminalDone, RpcError> {
    terminal(&cx)?.wish(Wish::Leave(params.turns));
    Ok(TerminalDone {})
}

fn terminal(cx: &Cx) -> Result<&Terminal, RpcError> {
    let unknown = || RpcError::internal("This server was started by no terminal");
    cx.services().terminal.get().ok_or_else(unknown)
}
