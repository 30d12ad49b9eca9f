//! A played HTTP server: says what the test wants and remembers what it was asked.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A server until the process ends.
pub struct Played {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Played {
    /// Answers the request of each number, from 0, with a status and a body.
    pub fn start(answer: impl Fn(usize) -> (u16, String) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = asked.clone();
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let mut stream = stream.unwrap();
                heard.lock().unwrap().push(target(&mut stream));
                let (status, body) = answer(number);
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status} Played\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
                );
                // Who asked may have left.
                let _ = stream.write_all((head + &body).as_bytes());
            }
        });
        Self { address, asked }
    }

    /// Path and query of every request so far.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn target(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    head.split(' ').nth(1).unwrap_or_default().to_owned()
}
