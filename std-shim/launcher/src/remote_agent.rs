//! The launcher's side of a remote agent: the remote shell that starts it.

use super::{
    launch_spec::LaunchSpec,
    local_processes::{kill_with_parent, remove_settings},
    output::{Merging, Source},
};
use std::{
    env,
    io::{self, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    thread,
};

/// The default remote shell: no terminal, no X11.
const DEFAULT_RSH: &str = "ssh -T -x";

/// A remote shell that runs an agent. When dropped, it is killed and reaped.
#[derive(Debug)]
pub(crate) struct RemoteAgent {
    shell: Child,
    ended: Option<ExitStatus>,
}

impl RemoteAgent {
    /// Starts an agent on the host and sends it its launch specification. With `forward_input`, this process's standard
    /// input follows. With `captured`, the agent's output is returned.
    pub(crate) fn start(
        rsh: Option<&str>,
        host: &str,
        order: &LaunchSpec,
        forward_input: bool,
        captured: bool,
    ) -> io::Result<(Self, Option<[Source; 2]>)> {
        let mut words = rsh.unwrap_or(DEFAULT_RSH).split_whitespace();
        let shell = words.next().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(shell);
        command.args(words).arg(host).arg(own_path()?).arg("agent");
        remove_settings(&mut command);
        command.process_group(0).stdin(Stdio::piped());
        if captured {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        kill_with_parent(&mut command, || Ok(()));
        let mut shell = command.spawn()?;
        if let Some(input) = shell.stdin.take() {
            let line = order.line()?;
            // An agent that does not read must not block the launcher.
            thread::Builder::new().name("order".to_owned()).spawn(move || send(input, &line, forward_input))?;
        }
        let merging = if order.size > 1 { Merging::Lines } else { Merging::Bytes };
        let plain = |from| Source { from, merging: merging.clone() };
        let sources = match (shell.stdout.take(), shell.stderr.take()) {
            (Some(output), Some(errors)) => Some([plain(output.into()), plain(errors.into())]),
            _ => None,
        };
        Ok((Self { shell, ended: None }, sources))
    }

    /// The exit status of the remote shell, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.shell.try_wait().ok().flatten();
        }
        self.ended
    }
}

impl Drop for RemoteAgent {
    fn drop(&mut self) {
        if self.ended().is_none() {
            let _ = self.shell.kill();
            let _ = self.shell.wait();
        }
    }
}

/// The path of this executable, expected to be the same on the other host. Returns an error if the path has characters
/// that a shell would interpret.
fn own_path() -> io::Result<PathBuf> {
    let path = env::current_exe()?;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._+-".contains(byte);
    if path.as_os_str().as_encoded_bytes().iter().all(plain) {
        Ok(path)
    } else {
        let reason = format!(
            "the path {} has characters that a remote shell would interpret: install unisono elsewhere",
            path.display()
        );
        Err(io::Error::new(io::ErrorKind::InvalidFilename, reason))
    }
}

fn send(mut input: ChildStdin, line: &[u8], forward_input: bool) {
    // A failed write means that the agent ended, which is detected elsewhere.
    if input.write_all(line).is_ok() && forward_input {
        let _ = io::copy(&mut io::stdin(), &mut input);
    }
}
