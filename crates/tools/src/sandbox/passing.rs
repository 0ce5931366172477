//! A file handle on its way from the server to its launcher, with the order it belongs to.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// As much as is taken in one go. Orders are longer only where a text is to be read by a command.
const FIRST_BYTES: usize = 64 << 10;

/// Sends the first part of `order` with `handle`, and says how much of it that was.
pub(super) fn send(to: &UnixStream, order: &[u8], handle: BorrowedFd<'_>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    let handles = [handle];
    if !with.push(SendAncillaryMessage::ScmRights(&handles)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let first = &order[..order.len().min(FIRST_BYTES)];
    Ok(sendmsg(to.as_fd(), &[IoSlice::new(first)], &mut with, SendFlags::NOSIGNAL)?)
}

/// The first bytes that come, and the handle that came with them.
pub(super) fn receive(from: &UnixStream) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; FIRST_BYTES];
    let mut into = [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(from.as_fd(), &mut into, &mut with, RecvFlags::CMSG_CLOEXEC)?;
    let handle = with.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut handles) => handles.next(),
        _ => None,
    });
    bytes.truncate(received.bytes);
    Ok((bytes, handle))
}
