//! The halves of a Unix stream.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::unix::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::io::{AsyncRead, AsyncWrite};

use crate::net::halves::halves;
use crate::net::unix::stream::UnixStream;
use crate::platform::sync::Arc;

halves!(UnixStream, SocketAddr);
