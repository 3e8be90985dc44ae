//! Messages between processes of ours, a line of JSON each, some with a file.
//!
//! Enters: messages, and the end of a socket. Leaves: the same messages at the other end, in their order. Never here: what they mean.

use std::{
    collections::VecDeque,
    io::{self, IoSlice, IoSliceMut, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::retry_on_intr,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, recvmsg, sendmsg,
    },
};
use serde::{Serialize, de::DeserializeOwned};

/// The number of bytes that one read asks for.
const READ_BYTES: usize = 4096;
/// The greatest number of files that may come with one read.
const FILES_MAX: usize = 8;

/// One end of a connected socket between two processes of ours.
pub struct Channel {
    stream: UnixStream,
    bytes: VecDeque<u8>,
    files: VecDeque<OwnedFd>,
}

impl Channel {
    /// Makes an end of a socket.
    pub fn new(stream: UnixStream) -> Self {
        Channel { stream, bytes: VecDeque::new(), files: VecDeque::new() }
    }

    /// Returns the socket, for those who wait for several files.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Sends a message, and waits as long as the other end does not read.
    pub fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.stream.write_all(&line(message)?)
    }

    /// Sends a message with a file.
    pub fn send_with(&mut self, message: &impl Serialize, file: BorrowedFd) -> io::Result<()> {
        let line = line(message)?;
        let files = [file];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)), "there is room for one file");
        let parts = [IoSlice::new(&line)];
        let sent = retry_on_intr(|| sendmsg(&self.stream, &parts, &mut ancillary, SendFlags::NOSIGNAL))?;
        self.stream.write_all(&line[sent..])
    }

    /// Waits for the next message. An error of the kind `UnexpectedEof` says that the other end is closed.
    pub fn receive<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        while !self.has_message() {
            self.read()?;
        }
        let end = self.bytes.iter().position(|byte| *byte == b'\n').expect("a whole message");
        let line: Vec<u8> = self.bytes.drain(..=end).collect();
        Ok(serde_json::from_slice(&line)?)
    }

    /// Waits for a message, for so long at most. Returns whether there is one, or the other end is closed.
    pub fn wait(&mut self, patience: Duration) -> io::Result<bool> {
        if self.has_message() {
            return Ok(true);
        }
        let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
        let mut files = [PollFd::from_borrowed_fd(self.stream.as_fd(), PollFlags::IN)];
        match poll(&mut files, Some(&patience)) {
            Err(rustix::io::Errno::INTR) => Ok(false),
            ready => Ok(ready? > 0),
        }
    }

    /// Returns whether a message has been read already.
    pub fn has_message(&self) -> bool {
        self.bytes.contains(&b'\n')
    }

    /// Returns the next file that came with a message.
    pub fn take_file(&mut self) -> Option<OwnedFd> {
        self.files.pop_front()
    }

    fn read(&mut self) -> io::Result<()> {
        let mut bytes = [0; READ_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let received =
            retry_on_intr(|| recvmsg(&self.stream, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC))?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                self.files.extend(files);
            }
        }
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.bytes.extend(&bytes[..received.bytes]);
        Ok(())
    }
}

fn line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn messages_come_in_order_with_their_files() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut ours, mut theirs) = (Channel::new(ours), Channel::new(theirs));
        let (near, mut far) = UnixStream::pair().unwrap();
        ours.send(&1).unwrap();
        ours.send_with(&"two", near.as_fd()).unwrap();
        drop(near);
        assert!(theirs.wait(Duration::ZERO).unwrap());
        assert_eq!(theirs.receive::<u32>().unwrap(), 1);
        assert_eq!(theirs.receive::<String>().unwrap(), "two");
        let file = UnixStream::from(theirs.take_file().unwrap());
        (&file).write_all(b"x").unwrap();
        drop(file);
        assert_eq!(far.read(&mut [0; 2]).unwrap(), 1);
        assert!(!theirs.wait(Duration::ZERO).unwrap() && theirs.take_file().is_none());
        drop(ours);
        assert_eq!(theirs.receive::<u32>().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
