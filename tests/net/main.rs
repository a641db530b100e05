//! Tests of the sockets. All traffic goes to loopback.

mod basics;
