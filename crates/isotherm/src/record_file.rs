//! A record that takes its place only once there is something to record.

use anyhow::Context;
use isotherm_core::event::{Event, Step, Subscriber, SubscriberError};
use isotherm_files::NewFile;
use isotherm_record::{Options, Summary, WriteError, Writer};
use std::path::{Path, PathBuf};

/// Writes a record. Until the first target is there, a file of that name is left as it is: where the command that was
/// to be watched cannot be executed, no empty record takes its place.
#[derive(Debug)]
pub struct RecordFile {
    state: State,
    /// Whether command lines keep their arguments.
    arguments: bool,
}

#[derive(Debug)]
enum State {
    /// Events that came before anything that is worth a file.
    Waiting {
        path: PathBuf,
        options: Options,
        events: Vec<Event>,
    },
    Open(Box<Writer>),
    /// It could not be created; reported with the next event.
    Failed(Option<WriteError>),
}

impl RecordFile {
    /// A record to `path`; `-` is standard output. Fails now if it could not be created later.
    pub fn create(path: &Path, options: Options) -> anyhow::Result<Self> {
        let open = |writer| Ok(Self { state: State::Open(Box::new(writer)), arguments: true });
        if path.as_os_str() == "-" {
            return open(Writer::to_stream("standard output", Box::new(std::io::stdout()), options)?);
        }
        // A pipe's reader would see an end if it were opened to try and again to write.
        if path.metadata().is_ok_and(|m| !m.is_file()) {
            return open(Writer::create(path, options)?);
        }
        // Nothing is written, only tried.
        NewFile::create(path, NewFile::PRIVATE)
            .map(drop)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { state: State::Waiting { path: path.to_owned(), options, events: Vec::new() }, arguments: true })
    }

    /// Leaves arguments out of command lines.
    pub fn without_arguments(mut self) -> Self {
        self.arguments = false;
        self
    }

    /// Ends the record. One that has not begun is not made, unless `complete`: nothing went wrong, there was just no
    /// target.
    pub fn finish(mut self, complete: bool) -> Result<Summary, WriteError> {
        if complete {
            self.begin()?;
        }
        match self.state {
            State::Open(writer) => writer.finish(),
            State::Failed(Some(error)) => Err(error),
            State::Waiting { .. } | State::Failed(None) => Ok(Summary::default()),
        }
    }

    /// Creates the file, if it has not been, with what has come so far.
    fn begin(&mut self) -> Result<(), WriteError> {
        let State::Waiting { path, options, events } = &mut self.state else { return Ok(()) };
        let created = Writer::create(path, *options).and_then(|mut writer| {
            events.iter().try_for_each(|e| writer.write(e))?;
            Ok(writer)
        });
        match created {
            Ok(writer) => self.state = State::Open(Box::new(writer)),
            Err(error) => {
                self.state = State::Failed(None);
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Subscriber for RecordFile {
    fn event(&mut self, event: &Event) -> Result<(), SubscriberError> {
        let event = match event {
            Event::Target(info) if !self.arguments => {
                let mut info = info.clone();
                info.leave_out_arguments();
                &Event::Target(info)
            }
            event => event,
        };
        if let (State::Waiting { events, .. }, Event::Run(_)) = (&mut self.state, event) {
            events.push(event.clone());
            return Ok(());
        }
        self.begin()?;
        match &mut self.state {
            State::Open(writer) => writer.event(event),
            State::Failed(error) => error.take().map_or(Ok(()), |e| Err(e.into())),
            State::Waiting { .. } => Ok(()),
        }
    }

    fn step(&mut self, step: Step, now_ns: u64) {
        // The targets are opened within an update; once it is over, watching has begun.
        if step != Step::BeforeUpdate
            && let Err(error) = self.begin()
        {
            self.state = State::Failed(Some(error));
        }
        if let State::Open(writer) = &mut self.state {
            writer.step(step, now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::attrs::MonitorAttrs;
    use isotherm_core::event::RunInfo;
    use isotherm_core::target::TargetInfo;

    fn run() -> Event {
        Event::Run(RunInfo {
            source: "sim".into(),
            algorithm: String::new(),
            attrs: MonitorAttrs::default(),
            cpu_budget: None,
            kernel: String::new(),
            realtime_offset_ns: 0,
        })
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn an_old_record_stays_until_there_is_a_target() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.iso");
        std::fs::write(&path, "old").unwrap();
        let mut record = RecordFile::create(&path, Options::default()).unwrap();
        record.event(&run()).unwrap();
        record.step(Step::BeforeUpdate, 0);
        record.finish(false).unwrap();
        assert_eq!(
            (names(folder.path()), std::fs::read_to_string(&path).unwrap()),
            (vec!["r.iso".into()], "old".into())
        );

        let mut record = RecordFile::create(&path, Options::default()).unwrap();
        record.event(&run()).unwrap();
        record.event(&Event::Target(TargetInfo { target: 0, pid: Some(1), name: String::new() })).unwrap();
        assert_eq!(names(folder.path()), ["r.iso", "r.iso.old"], "from now on a kill leaves a record");
        assert_eq!(record.finish(false).unwrap().events, 2);
    }

    #[test]
    fn a_run_without_a_target_is_recorded_where_nothing_went_wrong() {
        let folder = tempfile::tempdir().unwrap();
        for steps in [false, true] {
            let path = folder.path().join(format!("{steps}.iso"));
            let mut record = RecordFile::create(&path, Options::default()).unwrap();
            record.event(&run()).unwrap();
            if steps {
                record.step(Step::AfterUpdate, 0);
                assert!(path.exists());
            }
            assert_eq!(record.finish(true).unwrap().events, 1);
            assert!(path.exists());
        }
    }

    #[test]
    fn arguments_can_be_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.iso");
        for (bare, name) in [(false, "java -Dpassword=secret"), (true, "java")] {
            let mut record = RecordFile::create(&path, Options::default()).unwrap();
            if bare {
                record = record.without_arguments();
            }
            let info = TargetInfo { target: 0, pid: Some(1), name: "java -Dpassword=secret".into() };
            record.event(&Event::Target(info)).unwrap();
            record.finish(true).unwrap();
            assert_eq!(isotherm_record::Record::load(&path).unwrap().targets[0].name, name);
        }
    }

    #[test]
    fn a_place_that_cannot_be_written_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().join("missing/r.iso"), folder.path().to_owned()] {
            let e = RecordFile::create(&path, Options::default()).unwrap_err();
            assert!(format!("{e:#}").contains(path.to_str().unwrap()), "{e:#}");
        }
        assert!(names(folder.path()).is_empty());
    }
}
