//! The words of `--reading` and `--restarts`. Knows no manifest and reads no source.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::Uri;
use model_deployment::pod::{Listener, Scheme};
use model_deployment::snapshot::{Failure, UnknownFailure};
use thiserror::Error;

/// A Pod: its role, or `router` or `coordinator`, and its number there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The role's name, `router` or `coordinator`.
    pub role: String,
    /// The replica, from 0.
    pub ordinal: u32,
}

/// `ROLE/ORDINAL[@SECONDS]=SOURCE`.
#[derive(Clone, Debug)]
pub struct Given {
    /// Whose reading.
    pub place: Place,
    /// When it was made, counted from the start; zero with a URL, which is read now.
    pub at: Duration,
    /// Where it is.
    pub source: Source,
}

/// Where a reading is.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file of exposition text.
    File(PathBuf),
    /// A URL, to be read now.
    Url(Url),
    /// A fetch that failed.
    Failure(Failure),
}

/// A URL of an address.
#[derive(Clone, Debug)]
pub struct Url {
    /// The address.
    pub address: IpAddr,
    /// Scheme, port and path.
    pub listener: Listener,
}

/// `ROLE/ORDINAL@SECONDS`: the container restarted between the readings around that time.
#[derive(Clone, Debug)]
pub struct Restart {
    /// Whose container.
    pub place: Place,
    /// When, counted from the start.
    pub at: Duration,
}

/// Why a word of the command line is none of these.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// Not a reading.
    #[error("a reading is ROLE/ORDINAL[@SECONDS]=SOURCE")]
    Reading,
    /// Not a restart.
    #[error("a restart is ROLE/ORDINAL@SECONDS")]
    Restart,
    /// Not a time.
    #[error("{0:?} is not a number of seconds from 0")]
    Seconds(String),
    /// A time beside a URL.
    #[error("a URL is read now, so it takes no @SECONDS")]
    TimedUrl,
    /// Not a URL that is read.
    #[error("{0:?} is not the URL of a metrics page: http or https, without user and password")]
    Url(String),
    /// A host that would have to be resolved.
    #[error("names are not resolved: write the IP address of {0:?}")]
    HostName(String),
    /// No code of a failure.
    #[error(transparent)]
    Failure(#[from] UnknownFailure),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.role, self.ordinal)
    }
}

impl Place {
    fn parse(text: &str) -> Option<Self> {
        let (role, ordinal) = text.split_once('/')?;
        let is_number = !ordinal.is_empty() && ordinal.bytes().all(|byte| byte.is_ascii_digit());
        let ordinal = ordinal.parse().ok().filter(|_| is_number)?;
        (!role.is_empty()).then(|| Self {
            role: role.to_owned(),
            ordinal,
        })
    }
}

impl FromStr for Given {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let (pod, source) = text.split_once('=').ok_or(Malformed::Reading)?;
        let (place, at) = match pod.split_once('@') {
            Some((place, at)) => (place, Some(seconds(at)?)),
            None => (pod, None),
        };
        let place = Place::parse(place).ok_or(Malformed::Reading)?;
        let source: Source = source.parse()?;
        if at.is_some() && matches!(source, Source::Url(_)) {
            return Err(Malformed::TimedUrl);
        }
        Ok(Self {
            place,
            at: at.unwrap_or_default(),
            source,
        })
    }
}

impl FromStr for Source {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        if let Some(code) = text.strip_prefix("error:") {
            return Ok(Self::Failure(code.parse()?));
        }
        if text.starts_with("http://") || text.starts_with("https://") {
            return Ok(Self::Url(text.parse()?));
        }
        match text {
            "" => Err(Malformed::Reading),
            path => Ok(Self::File(path.into())),
        }
    }
}

impl FromStr for Url {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let malformed = || Malformed::Url(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| malformed())?;
        let authority = uri.authority().ok_or_else(malformed)?;
        if authority.as_str().contains('@') {
            return Err(malformed());
        }
        let (scheme, port) = match uri.scheme_str() {
            Some("http") => (Scheme::Http, 80),
            Some("https") => (Scheme::Https, 443),
            _ => return Err(malformed()),
        };
        let port = match authority.as_str().rsplit_once(':') {
            Some((_, port)) if !port.ends_with(']') => port.parse().map_err(|_| malformed())?,
            _ => port,
        };
        let address = match authority.host() {
            // What a port-forward says that it listens on.
            "localhost" => Ipv4Addr::LOCALHOST.into(),
            host => host
                .trim_start_matches('[')
                .trim_end_matches(']')
                .parse()
                .map_err(|_| Malformed::HostName(host.to_owned()))?,
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self {
            address,
            listener: Listener { scheme, port, path },
        })
    }
}

impl FromStr for Restart {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let (place, at) = text.split_once('@').ok_or(Malformed::Restart)?;
        let place = Place::parse(place).ok_or(Malformed::Restart)?;
        Ok(Self {
            place,
            at: seconds(at)?,
        })
    }
}

fn seconds(text: &str) -> Result<Duration, Malformed> {
    let malformed = || Malformed::Seconds(text.to_owned());
    let seconds = text.parse().map_err(|_| malformed())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| malformed())
}
