//! Puts a configuration together from a file, the environment and the command line.

use super::Config;
use super::directives::{Known, directives, find};
use super::inert;
use super::policy::Policy;
use crate::error::{Error, ErrorKind};
use duramen::MediumKind;
use duramen_resp::inline;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;

// A file that includes itself must end somewhere; Redis allows 16.
const INCLUDE_DEPTH_MAX: usize = 16;
const NO_EFFECT: &str = "without effect here: ";
const ENVIRONMENT_PREFIX: &str = "DURAMEN_";

/// Options of memcached's that mean the same here, and their directives.
const MEMCACHED_OPTIONS: [(&str, &str); 13] = [
    ("-Z", "memcached-tls"),
    ("-p", "memcached"),
    ("-l", "memcached-bind"),
    ("-s", "memcached-socket"),
    ("-a", "unixsocketperm"),
    ("-I", "memcached-max-item-size"),
    ("-A", "memcached-enable-shutdown"),
    ("-m", "maxmemory"),
    ("-M", "maxmemory-policy"),
    ("-c", "maxclients"),
    ("-t", "duramen-threads"),
    ("-P", "pidfile"),
    ("-b", "tcp-backlog"),
];

/// memcached's options without an effect here, and whether they take a value; a log line names those that are used.
/// Items need no preallocated memory, a service manager starts the server in the background and as its user, and there
/// is no UDP.
const MEMCACHED_WITHOUT_EFFECT: [(&str, bool); 19] = [
    ("-U", true),
    ("-v", false),
    ("-vv", false),
    ("-vvv", false),
    ("-d", false),
    ("-r", false),
    ("-u", true),
    ("-R", true),
    ("-k", false),
    ("-o", true),
    ("-e", true),
    ("-f", true),
    ("-n", true),
    ("-L", false),
    ("-C", false),
    ("-D", true),
    ("-B", true),
    ("-N", true),
    ("-X", false),
];

/// The text of `duramen serve --help` about the directives.
pub fn help() -> String {
    let config = Config::default();
    let mut text = String::from(
        "duramen serve [FILE.conf | FILE.toml | -] [--directive value…]…\n\n\
         A directive is set on the command line with --, on a line of the file, or in the environment as\n\
         DURAMEN_NAME (for example DURAMEN_PORT). The prefix duramen- may be left out: --medium and\n\
         DURAMEN_MEDIUM set duramen-medium. Later sources override earlier ones: file, environment,\n\
         command line.\n\n",
    );
    for directive in directives() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {} (default: {})", directive.name, quoted(&(directive.get)(&config)));
        let _ = writeln!(text, "      {}", directive.text);
    }
    text.push_str(
        "\n  --tune FILE\n      Read settings for this medium from a file that duramen bench mem --tune FILE wrote. Command \
         line only;\n      arguments after it override its settings.\n",
    );
    text.push_str("\n  Options of memcached's:");
    for (option, name) in MEMCACHED_OPTIONS {
        let _ = write!(text, " {option} is --{name},");
    }
    text.push_str(" sizes in its units.\n");
    text.push_str("\nExit codes: 0 clean shutdown, 1 system, 2 configuration, 3 store, 4 address.\n");
    text
}

fn quoted(text: &str) -> String {
    if text.is_empty() { "\"\"".to_owned() } else { text.to_owned() }
}

impl Config {
    /// Reads the command line as redis-server does: a file first (`-` is standard input), then directives
    /// with `--`. `args` comes without the program's name and without `serve`.
    ///
    /// # Errors
    /// `Configuration`, naming file, line and text, or the argument.
    pub fn from_args(
        args: impl IntoIterator<Item = String>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, Error> {
        let mut config = Self::default();
        let mut args = args.into_iter().peekable();
        if let Some(file) = args.next_if(|first| !begins_option(first)) {
            config.load_file(&file, 0)?;
        }
        config.load_environment(environment)?;
        while let Some(argument) = args.next() {
            if let Some((option, value)) = split_memcached(&argument) {
                // Some options take no value.
                let value = value.map(str::to_owned).or_else(|| args.next_if(|next| !begins_option(next)));
                config
                    .set_memcached(option, value.as_deref())
                    .map_err(|why| configuration(format!("argument '{argument}': {why}")))?;
                continue;
            }
            let Some(name) = argument.strip_prefix("--").filter(|name| !name.is_empty()) else {
                return Err(configuration(format!(
                    "argument {argument:?}: a directive begins with --, as in --port 6379"
                )));
            };
            let mut values = Vec::new();
            let (name, with_equals) = match name.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (name, None),
            };
            values.extend(with_equals);
            // A rule such as -acl looks like an option of memcached's.
            let is_user = name.eq_ignore_ascii_case("user");
            let ends = |next: &String| if is_user { next.starts_with("--") } else { begins_option(next) };
            while let Some(value) = args.next_if(|next| !ends(next)) {
                values.push(value);
            }
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            let text = format!("--{name} {}", values.join(" "));
            if name == "tune" {
                let [profile] = values.as_slice() else {
                    return Err(configuration(format!(
                        "argument '{}': wanted one file, as duramen bench mem --tune writes it",
                        text.trim_end()
                    )));
                };
                config.load_toml(profile, &read(profile)?)?;
                continue;
            }
            // As in the environment, an engine directive may be named without its prefix.
            let own = format!("duramen-{name}");
            let name = if matches!(find(&own), Known::Directive(_)) { &own } else { name };
            config
                .set(name, &values)
                .map_err(|why| configuration(format!("argument '{}': {why}", text.trim_end())))?;
        }
        config.end_as_memcached();
        Ok(config)
    }

    /// Sets a directive by one of memcached's options. Sizes are in memcached's units: `k` is 1024, and memory is in
    /// MiB.
    fn set_memcached(&mut self, option: &'static str, value: Option<&str>) -> Result<(), String> {
        self.is_memcached |= matches!(option, "-p" | "-s");
        let Some((_, name)) = MEMCACHED_OPTIONS.into_iter().find(|(known, _)| *known == option) else {
            let has_value = MEMCACHED_WITHOUT_EFFECT.contains(&(option, true));
            return match (has_value, value) {
                (true, None) => Err("wants a value".to_owned()),
                (false, Some(_)) => Err("takes no value".to_owned()),
                // UDP does not exist here anyway.
                (true, Some("0")) if option == "-U" => Ok(()),
                (_, value) => {
                    let value = value.map_or_else(String::new, |value| format!(" {value}"));
                    self.note_no_effect(&format!("{option}{value}"));
                    Ok(())
                }
            };
        };
        let value = match (name, value) {
            ("memcached-enable-shutdown" | "memcached-tls", None) => "yes".to_owned(),
            ("maxmemory-policy", None) => "noeviction".to_owned(),
            ("memcached-enable-shutdown" | "memcached-tls" | "maxmemory-policy", Some(_)) => {
                return Err("takes no value".to_owned());
            }
            (_, None) => return Err("wants a value".to_owned()),
            ("maxmemory", Some(megabytes)) => {
                // memcached evicts by default.
                self.maxmemory_policy.get_or_insert(Policy::CACHE);
                format!("{megabytes}mb")
            }
            // Each `-l` adds one address.
            ("memcached-bind", Some(address)) if self.memcached_bind_is_option => {
                format!("{} {address}", self.memcached_bind.join(" "))
            }
            ("memcached-max-item-size", Some(size)) => match size.strip_suffix(['k', 'm', 'g']) {
                Some(_) => format!("{size}b"),
                None => size.to_owned(),
            },
            (_, Some(value)) => value.to_owned(),
        };
        self.memcached_bind_is_option |= name == "memcached-bind";
        self.set(name, &[&value])
    }

    /// Applies memcached's defaults to a server that was started with memcached's options for its address. It speaks
    /// only memcached's protocols and keeps its items in memory, unless other directives are set.
    fn end_as_memcached(&mut self) {
        let is_given = |name: &str| self.given.contains(name);
        if !self.is_memcached {
            return;
        }
        let keeps_port = is_given("port");
        let keeps_place =
            is_given("duramen-path") || is_given("duramen-medium") || is_given("duramen-durability");
        if !keeps_port {
            self.port = 0;
        }
        if !keeps_place {
            (self.medium, self.path) = (MediumKind::Volatile, "volatile".into());
            self.notices.push(
                "as memcached, the items are in memory and gone with the process; --path FILE keeps them"
                    .to_owned(),
            );
        }
    }

    fn note_no_effect(&mut self, what: &str) {
        match self.notices.iter_mut().find(|notice| notice.starts_with(NO_EFFECT)) {
            Some(notice) => {
                notice.push_str(", ");
                notice.push_str(what);
            }
            None => self.notices.push(format!("{NO_EFFECT}{what}")),
        }
    }

    fn load_environment(&mut self, all: impl IntoIterator<Item = (String, String)>) -> Result<(), Error> {
        for (key, value) in all {
            let Some(name) = key.strip_prefix(ENVIRONMENT_PREFIX) else { continue };
            let name = name.to_ascii_lowercase().replace('_', "-");
            let own = format!("duramen-{name}");
            let name = if matches!(find(&own), Known::Directive(_)) { own } else { name };
            if !matches!(find(&name), Known::Directive(_)) {
                // Other parts of Duramen have variables too.
                continue;
            }
            let values: Vec<&str> = value.split_whitespace().collect();
            let values = if values.is_empty() { vec![""] } else { values };
            self.set(&name, &values)
                .map_err(|why| configuration(format!("environment {key}={value:?}: {why}")))?;
        }
        Ok(())
    }

    fn load_file(&mut self, file: &str, depth: usize) -> Result<(), Error> {
        if depth > INCLUDE_DEPTH_MAX {
            return Err(configuration(format!(
                "{file}: includes are nested more than {INCLUDE_DEPTH_MAX} deep"
            )));
        }
        let text = read(file)?;
        if depth == 0 && file != "-" {
            let absolute = std::path::absolute(file).unwrap_or_else(|_| Path::new(file).to_owned());
            self.file = Some(absolute);
        }
        if Path::new(file).extension().is_some_and(|extension| extension == "toml") {
            return self.load_toml(file, &text);
        }
        for (index, line) in text.lines().enumerate() {
            let at =
                |why: String| configuration(format!("{file} line {}: '{}': {why}", index + 1, line.trim()));
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            // A line of a memcached file such as /etc/memcached.conf.
            if let Some((option, value)) = line.split_whitespace().next().and_then(split_memcached) {
                let value =
                    value.or_else(|| line.split_once(char::is_whitespace).map(|(_, rest)| rest.trim()));
                self.set_memcached(option, value).map_err(at)?;
                continue;
            }
            let (mut buffer, mut spans) = (Vec::new(), Vec::new());
            inline::split(line.as_bytes(), &mut buffer, &mut spans)
                .map_err(|inline::Unbalanced| at("quotes do not match".to_owned()))?;
            let words: Vec<&str> = spans
                .iter()
                .map(|span| std::str::from_utf8(&buffer[span.start..span.end]))
                .collect::<Result<_, _>>()
                .map_err(|_| at("is not UTF-8".to_owned()))?;
            match words.as_slice() {
                [] => {}
                [include, files @ ..] if include.eq_ignore_ascii_case("include") => {
                    for other in files {
                        self.load_file(other, depth + 1)?;
                    }
                }
                [name, values @ ..] => self.set(name, values).map_err(at)?,
            }
        }
        Ok(())
    }

    /// `[server]` has redis.conf's names; `[engine]` and `[medium]` the `duramen-` ones without the prefix, and
    /// `kind` in `[medium]` is `duramen-medium`.
    fn load_toml(&mut self, file: &str, text: &str) -> Result<(), Error> {
        let table: toml::Table = text.parse().map_err(|error| configuration(format!("{file}: {error}")))?;
        for (section, content) in &table {
            let Some(content) = content.as_table() else {
                return Err(configuration(format!(
                    "{file}: '{section}': every setting belongs to [server], [engine] or [medium]"
                )));
            };
            for (key, value) in content {
                let at = |why: String| configuration(format!("{file}: [{section}] {key} = {value}: {why}"));
                let name = match section.as_str() {
                    "server" => key.clone(),
                    "medium" if key == "kind" => "duramen-medium".to_owned(),
                    "engine" | "medium" => format!("duramen-{key}"),
                    _ => {
                        return Err(at(
                            "found another section, wanted [server], [engine] or [medium]".to_owned()
                        ));
                    }
                };
                if let ("server", "user", Some(lines)) = (section.as_str(), name.as_str(), value.as_array()) {
                    for line in lines {
                        let words: Vec<&str> = line.as_str().unwrap_or_default().split_whitespace().collect();
                        self.add_user(&words).map_err(at)?;
                    }
                    continue;
                }
                let values = toml_values(value).ok_or_else(|| {
                    at("must be a word, a number, true, false, or a list of them".to_owned())
                })?;
                let values: Vec<&str> = values.iter().map(String::as_str).collect();
                self.set(&name, &values).map_err(at)?;
            }
        }
        Ok(())
    }

    /// Sets one directive.
    fn set(&mut self, name: &str, values: &[&str]) -> Result<(), String> {
        if name.eq_ignore_ascii_case("user") {
            return self.add_user(values);
        }
        if name.eq_ignore_ascii_case("rename-command") {
            return self.rename_commands(values);
        }
        match find(name) {
            Known::Directive(directive) => {
                let (least, most) = directive.values;
                if values.len() < least || values.len() > most {
                    return Err(format!("wrong number of arguments: {}", directive.text));
                }
                self.given.insert(directive.name);
                (directive.set)(self, values)
            }
            Known::WithoutEffect => {
                self.note_no_effect(name);
                if let (Some(at), [value]) = (inert::find(name), values) {
                    // The same notice reports a value that cannot be set.
                    let _ = inert::set(self, at, value);
                }
                Ok(())
            }
            // "no", "0" and "" turn the feature off, which is the case anyway.
            Known::NotSupported(_) if matches!(values, ["no" | "0" | ""]) => Ok(()),
            Known::NotSupported(what) => {
                Err(format!("{what} is not supported; remove the line to start without it"))
            }
            Known::Unknown(nearest) => Err(match nearest {
                Some(nearest) => format!("unknown directive \"{name}\"; did you mean \"{nearest}\"?"),
                None => format!("unknown directive \"{name}\"; \"duramen serve --help\" lists all"),
            }),
        }
    }
}

impl Config {
    /// The directive `rename-command NAME NEW`. The names are checked at the start, when the commands are known.
    fn rename_commands(&mut self, values: &[&str]) -> Result<(), String> {
        // A TOML file has one list for all.
        let (pairs, []) = values.as_chunks::<2>() else {
            return Err("wants a name and a new name".to_owned());
        };
        if pairs.is_empty() {
            return Err("wants a name and a new name".to_owned());
        }
        self.renamed_commands.extend(pairs.iter().map(|[old, new]| ((*old).to_owned(), (*new).to_owned())));
        Ok(())
    }

    /// The directive `user NAME WORD…`. Its words are checked at the start, when the commands are known.
    fn add_user(&mut self, values: &[&str]) -> Result<(), String> {
        let Some(name) = values.first() else { return Err("wants a name".to_owned()) };
        if self.users.iter().any(|user| user.first().is_some_and(|other| other == name)) {
            return Err("Duplicate user found. A user can only be defined once in config files".to_owned());
        }
        self.users.push(values.iter().map(|value| (*value).to_owned()).collect());
        Ok(())
    }
}

/// Splits one of memcached's options from a value in the same word, as in `-m64`.
fn split_memcached(argument: &str) -> Option<(&'static str, Option<&str>)> {
    let with_values = MEMCACHED_OPTIONS.into_iter().map(|(option, name)| {
        (option, !matches!(name, "maxmemory-policy" | "memcached-enable-shutdown" | "memcached-tls"))
    });
    let all = || with_values.clone().chain(MEMCACHED_WITHOUT_EFFECT);
    if let Some((option, _)) = all().find(|(option, _)| *option == argument) {
        return Some((option, None));
    }
    let grouped = |(option, has_value): (&'static str, bool)| {
        Some((option, argument.strip_prefix(option).filter(|value| has_value && !value.is_empty())?))
    };
    all().find_map(grouped).map(|(option, value)| (option, Some(value)))
}

fn begins_option(argument: &str) -> bool {
    argument.starts_with("--") || split_memcached(argument).is_some()
}

fn toml_values(value: &toml::Value) -> Option<Vec<String>> {
    Some(match value {
        toml::Value::Array(values) => {
            values.iter().map(toml_values).collect::<Option<Vec<_>>>()?.into_iter().flatten().collect()
        }
        toml::Value::String(text) => vec![text.clone()],
        toml::Value::Integer(number) => vec![number.to_string()],
        toml::Value::Boolean(value) => vec![super::value::yes_no_text(*value)],
        _ => return None,
    })
}

fn read(file: &str) -> Result<String, Error> {
    let mut text = String::new();
    let result = match file {
        "-" => std::io::stdin().read_to_string(&mut text).map(|_| ()),
        _ => std::fs::File::open(file).and_then(|mut file| file.read_to_string(&mut text)).map(|_| ()),
    };
    result.map_err(|error| configuration(format!("cannot read configuration file {file}: {error}")))?;
    Ok(text)
}

fn configuration(message: String) -> Error {
    Error::new(ErrorKind::Configuration, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use duramen::{Durability, MediumKind};
    use std::time::Duration;

    fn from(args: &[&str], environment: &[(&str, &str)]) -> Result<Config, String> {
        Config::from_args(
            args.iter().map(|text| (*text).to_owned()),
            environment.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())),
        )
        .map_err(|error| error.to_string())
    }

    fn file(name: &str, text: &str) -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap().to_owned();
        (dir, path)
    }

    #[test]
    fn the_default_configuration_is_safe() {
        let config = from(&[], &[]).unwrap();
        assert_eq!((config.port, config.protected_mode, config.bind[0].as_str()), (6379, true, "127.0.0.1"));
        assert_eq!(config.durability, Durability::EveryWrite);
    }

    #[test]
    fn later_sources_win() {
        let (_dir, path) = file("a.conf", "port 1\n# port 9\nport 2\ntimeout 5\nmaxclients 7\n");
        let environment =
            [("DURAMEN_PORT", "3"), ("DURAMEN_TIMEOUT", "6"), ("DURAMEN_MEDIUM", "shm"), ("PORT", "8")];
        let config = from(&[&path, "--port", "4"], &environment).unwrap();
        assert_eq!((config.port, config.timeout, config.maxclients), (4, 6, 7));
        assert_eq!(config.medium, MediumKind::Shm);
    }

    #[test]
    fn memcacheds_options_keep_their_meaning() {
        let args = [
            "--port",
            "0",
            "-p",
            "11211",
            "-l",
            "127.0.0.1,::1",
            "-m",
            "64",
            "-I",
            "2m",
            "-c",
            "9",
            "-M",
            "-A",
        ];
        let config = from(&args, &[]).unwrap();
        assert_eq!((config.port, config.memcached, config.maxclients), (0, 11211, 9));
        assert_eq!((config.maxmemory, config.memcached_max_item_size), (64 << 20, 2 << 20));
        assert_eq!(config.memcached_bind, ["127.0.0.1", "::1"]);
        assert!(config.memcached_enable_shutdown && config.memcached_database.is_none());
        assert_eq!(from(&["-p"], &[]).unwrap_err(), "argument '-p': wants a value");
        let config = from(&["--memcached-database", "3"], &[("DURAMEN_MEMCACHED", "7")]).unwrap();
        assert_eq!((config.memcached, config.memcached_database), (7, Some(3)));
    }

    #[test]
    fn a_file_has_quotes_includes_and_any_case() {
        let (_other_dir, other) = file("b.conf", "requirepass 'two'\n");
        let text =
            format!("Requirepass \"a b\\x41\"\ninclude {other}\nBIND 127.0.0.1 ::1\nappendfsync everysec\n");
        let (_dir, path) = file("a.conf", &text);
        let config = from(&[&path], &[]).unwrap();
        assert_eq!(config.requirepass, "two");
        assert_eq!(config.bind, ["127.0.0.1", "::1"]);
        assert_eq!(config.durability, Durability::Interval(Duration::from_secs(1)));
    }

    #[test]
    fn a_file_that_includes_itself_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("loop.conf");
        std::fs::write(&path, format!("include {}\n", path.display())).unwrap();
        assert!(from(&[path.to_str().unwrap()], &[]).unwrap_err().contains("nested"));
    }

    #[test]
    fn an_unknown_directive_names_file_line_text_and_nearest_name() {
        let (_dir, path) = file("a.conf", "\nprot 6379\n");
        let error = from(&[&path], &[]).unwrap_err();
        assert_eq!(
            error,
            format!("{path} line 2: 'prot 6379': unknown directive \"prot\"; did you mean \"port\"?")
        );
        let error = from(&["--prot", "1"], &[]).unwrap_err();
        assert_eq!(error, "argument '--prot 1': unknown directive \"prot\"; did you mean \"port\"?");
    }

    #[test]
    fn a_file_may_contain_every_value_of_config_get() {
        for (name, value, _) in inert::INERT {
            let set = Config::default().set(name, &[value]);
            assert!(set.is_ok() || matches!(find(name), Known::NotSupported(_)), "{name}: {set:?}");
        }
    }

    #[test]
    fn toml_has_sections_for_server_engine_and_medium() {
        let text = "[server]\nport = 7\nprotected-mode = false\n[engine]\ndurability = \"5s\"\nthreads = 2\n\
                    [medium]\nkind = \"file\"\npath = \"/x\"\n";
        let (_dir, path) = file("a.toml", text);
        let config = from(&[&path], &[]).unwrap();
        assert_eq!((config.port, config.protected_mode, config.threads), (7, false, 2));
        assert_eq!((config.medium, config.path.to_str()), (MediumKind::File, Some("/x")));
        assert_eq!(config.durability, Durability::Interval(Duration::from_secs(5)));
        let (_dir, path) = file("a.toml", "[medium]\nspeed = 1\n");
        assert!(from(&[&path], &[]).unwrap_err().contains("unknown directive"));
    }

    #[test]
    fn directives_of_the_engine_go_by_their_own_names_too() {
        let config = from(&["--index", "ordered", "--index-cache-slots", "4096"], &[]).unwrap();
        assert_eq!((config.index, config.index_cache_slots), (duramen::IndexKind::Ordered, 4096));
        let config = from(&["--duramen-index", "hash"], &[("DURAMEN_INDEX", "ordered")]).unwrap();
        assert_eq!(config.index, duramen::IndexKind::Hash);
        let error = from(&["--index", "sorted"], &[]).unwrap_err();
        assert!(error.contains("use hash or ordered"), "{error}");
    }

    #[test]
    fn a_server_that_is_started_as_memcached_is_one() {
        let config = from(
            &[
                "-p",
                "11211",
                "-m64",
                "-u",
                "memcache",
                "-vv",
                "-d",
                "-U",
                "0",
                "-P",
                "/run/x.pid",
                "-b1024",
                "-o",
                "modern",
                "-k",
            ],
            &[],
        )
        .unwrap();
        assert_eq!((config.memcached, config.port, config.maxmemory), (11211, 0, 64 << 20));
        assert_eq!(
            (config.medium, config.pidfile.as_str(), config.tcp_backlog),
            (MediumKind::Volatile, "/run/x.pid", 1024)
        );
        assert_eq!(config.notices[0], "without effect here: -u memcache, -vv, -d, -o modern, -k");
        // An explicit port or path overrides the defaults of memcached.
        let config = from(&["-p", "1", "--port", "2", "--path", "/x"], &[]).unwrap();
        assert_eq!((config.port, config.path.to_str(), config.medium), (2, Some("/x"), MediumKind::Auto));
        assert_eq!(from(&["--memcached", "1"], &[]).unwrap().port, 6379);
        // As on Debian.
        let text = "# memcached default config file\n-d\nlogfile /var/log/memcached.log\n# -v\n-m 64\n-p 11211\n-u memcache\n\
                    -l 127.0.0.1\n-l ::1\n-c 1024\n-P /var/run/memcached/memcached.pid\n";
        let (_dir, path) = file("memcached.conf", text);
        let config = from(&[&path], &[]).unwrap();
        assert_eq!(
            (config.memcached, config.port, config.maxmemory, config.maxclients),
            (11211, 0, 64 << 20, 1024)
        );
        assert_eq!(config.memcached_bind, ["127.0.0.1", "::1"]);
        assert!(from(&["-p"], &[]).unwrap_err().contains("wants a value"));
        assert!(from(&["-k", "x"], &[]).is_err());
    }

    #[test]
    fn directives_of_redis_are_noted_or_refused() {
        let config =
            from(&["--hz", "10", "--save", "3600 1", "--cluster-enabled", "no", "--activedefrag", "no"], &[])
                .unwrap();
        assert_eq!(config.notices.len(), 2);
        assert_eq!(config.notices[0], "without effect here: hz, activedefrag");
        assert_eq!(config.save, "3600 1");
        let renamed = from(&["--rename-command", "get", "", "--rename-command", "set", "put"], &[]).unwrap();
        let pair = |old: &str, new: &str| (old.to_owned(), new.to_owned());
        assert_eq!(renamed.renamed_commands, [pair("get", ""), pair("set", "put")]);
        assert!(from(&["--rename-command", "a"], &[]).unwrap_err().contains("a name and a new name"));
        assert!(from(&["--min-replicas-to-write", "1"], &[]).unwrap_err().contains("not supported"));
        assert!(from(&["--min-replicas-to-write", "0"], &[]).is_ok());
        assert!(from(&["--maxmemory-policy", "allkeys-lri"], &[]).is_err());
    }

    #[test]
    fn errors_of_bad_values_name_the_allowed_ones() {
        for (args, wanted) in [
            (["--port", "70000"], "argument must be between 0 and 65535 inclusive"),
            (["--port", "x"], "argument couldn't be parsed into an integer"),
            (["--protected-mode", "maybe"], "argument must be 'yes' or 'no'"),
            (["--duramen-medium", "floppy"], "auto, devdax, fsdax, shm, file, volatile"),
        ] {
            assert!(from(&args, &[]).unwrap_err().contains(wanted), "{args:?}");
        }
        assert!(from(&["--port"], &[]).unwrap_err().contains("wrong number of arguments"));
        assert!(from(&["a.conf.missing"], &[]).unwrap_err().contains("a.conf.missing"));
    }

    #[test]
    fn a_profile_is_read_where_it_stands_on_the_command_line() {
        let profile = "# made by bench mem\n[medium]\nkind = \"shm\"\nflush-instruction = \"auto\"\n[engine]\n\
                       recovery-threads = 2\nthreads = 2\n";
        let (_dir, path) = file("profile", profile);
        for threads in ["--threads", "--duramen-threads"] {
            let config = from(&[threads, "9", "--tune", &path, "--duramen-recovery-threads", "3"], &[]);
            let config = config.unwrap();
            assert_eq!((config.threads, config.recovery_threads, config.medium), (2, 3, MediumKind::Shm));
        }
        let (_dir, redis) = file("redis.conf", "threads 9\n");
        assert!(from(&[&redis], &[]).is_err(), "threads is no directive of Redis");
        assert!(from(&["--tune"], &[]).unwrap_err().contains("wanted one file"));
        assert!(from(&["--tune", "missing.toml"], &[]).unwrap_err().contains("missing.toml"));
        let (_dir, path) = file("profile", "[medium]\nspeed = 3\n");
        assert!(from(&["--tune", &path], &[]).unwrap_err().contains("speed"));
    }

    #[test]
    fn help_names_every_directive() {
        let text = help();
        assert!(directives().all(|directive| text.contains(directive.name)));
    }
}
