//! The modules of a crate, and the file that a path in its code resolves to.
//!
//! A path is followed as an editor's "go to definition" follows it: through modules, `use` and `pub use`, to the file
//! that defines the name. If a crate's root has `pub use error::Error`, `use crate::Error` resolves to `error.rs`, not
//! to the root.
//!
//! The reader knows attributes, `mod`, `use` and the names of items. It does not expand macros and does not
//! know types: a method call names no file. Code under `#[cfg(test)]` is ignored, and so are the files of its modules.
//! If two files define the same module (`#[path]`, one for each processor), a path resolves to the first.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

use super::tree::Tree;

/// Names from the root of the crate; the root itself is empty.
type Path = Vec<String>;

/// A use of a name in one file that another file defines.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import {
    /// The file that uses the name.
    pub from: String,
    /// The file that defines it.
    pub to: String,
    /// The line of the first use, from 1.
    pub line: usize,
}

/// The imports between the file at `root` and the files of its modules.
pub fn imports(tree: &Tree, root: &str) -> Vec<Import> {
    let mut modules = Modules::default();
    modules.read(tree, root, Path::new(), directory(root));
    modules.imports()
}

/// One module: a file's, or one that is written inside a file.
#[derive(Default)]
struct Module {
    file: String,
    /// Names that `use` imports, and their paths.
    names: BTreeMap<String, Path>,
    /// Modules with `use module::*`.
    globs: Vec<Path>,
    /// Names that the module defines.
    items: BTreeSet<String>,
    mentions: Vec<Mention>,
}

/// A path in the code of a module.
struct Mention {
    path: Path,
    line: usize,
}

#[derive(Default)]
struct Modules(BTreeMap<Path, Module>);

impl Modules {
    /// Reads the module `at` in `file`, and the modules below it in `beneath`.
    fn read(&mut self, tree: &Tree, file: &str, at: Path, beneath: &str) {
        let Some(text) = tree.text(file) else { return };
        let lexed = lex(text);
        let tokens = tokens(&lexed);
        let mut reader =
            Reader { tokens: &tokens, place: 0, file, found: Modules::default(), declared: Vec::new() };
        reader.module(&at, false);
        let Reader { found, declared, .. } = reader;
        self.0.extend(found.0);
        for Declared { within, name, path } in declared {
            let inside = within[at.len()..].iter().fold(beneath.to_owned(), |path, part| join(&path, part));
            let candidates = match path {
                Some(path) => vec![join(directory(file), &path)],
                None => vec![join(&inside, &format!("{name}.rs")), join(&inside, &format!("{name}/mod.rs"))],
            };
            let Some(child) = candidates.into_iter().find(|candidate| tree.text(candidate).is_some()) else {
                continue;
            };
            let mut path = within;
            path.push(name.clone());
            if self.0.contains_key(&path) {
                // The same module for another platform: its imports count too, but paths resolve to the first.
                path.pop();
                path.push(format!("{name} in {child}"));
            }
            let below = if child.ends_with("/mod.rs") {
                directory(&child).to_owned()
            } else {
                child.trim_end_matches(".rs").to_owned()
            };
            self.read(tree, &child, path, &below);
        }
    }

    /// Every import of a file by another, each pair once, with its first line.
    fn imports(&self) -> Vec<Import> {
        let mut first = BTreeMap::<(&str, &str), usize>::new();
        for (at, module) in &self.0 {
            for mention in &module.mentions {
                let Some(to) = self.definition(at, &mention.path, FOLLOWED_MAX) else { continue };
                if to.file != module.file {
                    let line = first.entry((&module.file, to.file)).or_insert(mention.line);
                    *line = mention.line.min(*line);
                }
            }
        }
        first
            .into_iter()
            .map(|((from, to), line)| Import { from: from.to_owned(), to: to.to_owned(), line })
            .collect()
    }

    /// The file that defines `path` as seen from the module `at`; `None` if the path leaves the crate.
    fn definition(&self, at: &[String], path: &[String], followed_max: usize) -> Option<Definition<'_>> {
        let mut at = at.to_vec();
        let mut path = path;
        match path.first()?.as_str() {
            "crate" => {
                at.clear();
                path = &path[1..];
            }
            "self" => path = &path[1..],
            "super" => {}
            first => {
                let module = self.0.get(&at)?;
                let here = self.0.contains_key(&child(&at, first))
                    || module.names.contains_key(first)
                    || module.items.contains(first);
                if !here {
                    return None;
                }
            }
        }
        while path.first().is_some_and(|first| first == "super") {
            at.pop()?;
            path = &path[1..];
        }
        for (place, name) in path.iter().enumerate() {
            if self.0.contains_key(&child(&at, name)) {
                at = child(&at, name);
                continue;
            }
            let module = self.0.get(&at)?;
            if module.items.contains(name) {
                return Some(Definition { file: &module.file, sure: true });
            }
            let rest = &path[place + 1..];
            if let Some(target) = module.names.get(name).filter(|_| followed_max > 0) {
                let target = [target, rest].concat();
                // A name that resolves to itself comes from another crate: `use clap; … clap::Parser`.
                return if target == path { None } else { self.definition(&at, &target, followed_max - 1) };
            }
            let glob = module.globs.iter().filter(|_| followed_max > 0).find_map(|glob| {
                let target = [glob.as_slice(), &path[place..]].concat();
                self.definition(&at, &target, followed_max - 1).filter(|found| found.sure)
            });
            return glob.or(Some(Definition { file: &module.file, sure: false }));
        }
        Some(Definition { file: &self.0.get(&at)?.file, sure: true })
    }
}

// 16: a name passes through two or three re-exports; the bound stops at re-exports that refer to each other.
const FOLLOWED_MAX: usize = 16;

struct Definition<'a> {
    file: &'a str,
    /// False for a name that a macro may have defined.
    sure: bool,
}

fn child(at: &[String], name: &str) -> Path {
    let mut path = at.to_vec();
    path.push(name.to_owned());
    path
}

fn directory(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(directory, _)| directory)
}

fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

/// `mod name;`
struct Declared {
    within: Path,
    name: String,
    /// Of `#[path = "…"]`.
    path: Option<String>,
}

struct Reader<'a> {
    tokens: &'a [Token<'a>],
    place: usize,
    file: &'a str,
    found: Modules,
    declared: Vec<Declared>,
}

impl<'a> Reader<'a> {
    fn peek(&self, ahead: usize) -> Kind<'a> {
        self.tokens.get(self.place + ahead).map_or(Kind::End, |token| token.kind)
    }

    fn line(&self) -> usize {
        self.tokens.get(self.place).map_or(0, |token| token.line)
    }

    /// Reads to the end of the module `at`: the end of the file, or the closing brace.
    fn module(&mut self, at: &Path, inline: bool) {
        let mut module = Module { file: self.file.to_owned(), ..Module::default() };
        // Names of `pub use`, and the names that occur outside of `use`.
        let mut doors: Vec<Mention> = Vec::new();
        let mut used = BTreeSet::new();
        let mut depth = 0_usize;
        let mut public = false;
        let mut path_attribute = None;
        loop {
            let after = self.tokens.get(self.place.wrapping_sub(1)).map_or(Kind::End, |token| token.kind);
            match self.peek(0) {
                Kind::End => break,
                Kind::Mark('}') if depth == 0 => {
                    self.place += usize::from(inline);
                    if inline {
                        break;
                    }
                    self.place += 1;
                }
                Kind::Mark('#') => {
                    let attribute = self.attribute();
                    match attribute {
                        Attribute::Test { whole_file: true } => return,
                        Attribute::Test { whole_file: false } => self.skip_item(),
                        Attribute::Path(path) => path_attribute = Some(path),
                        Attribute::Other => {}
                    }
                }
                Kind::Name("pub") => {
                    public = true;
                    self.place += 1;
                    if self.peek(0) == Kind::Mark('(') {
                        self.skip_balanced();
                    }
                }
                Kind::Name("use") => {
                    self.place += 1;
                    let mut leaves = Vec::new();
                    self.use_tree(&mut Path::new(), &mut leaves);
                    for (path, name, line) in leaves {
                        let mention = Mention { path: path.clone(), line };
                        match name {
                            None => module.globs.push(path),
                            Some(name) if public => {
                                doors.push(Mention { path: vec![name.clone()], line });
                                module.names.insert(name, path);
                                continue;
                            }
                            Some(name) => {
                                module.names.insert(name, path);
                            }
                        }
                        if !public {
                            module.mentions.push(mention);
                        }
                    }
                    public = false;
                }
                Kind::Name("mod") if matches!(self.peek(1), Kind::Name(_)) && depth == 0 => {
                    let Kind::Name(name) = self.peek(1) else { break };
                    let ends = self.peek(2);
                    self.place += 3;
                    if ends == Kind::Mark('{') {
                        self.module(&child(at, name), true);
                    } else {
                        let path = path_attribute.take();
                        self.declared.push(Declared { within: at.clone(), name: name.to_owned(), path });
                    }
                    public = false;
                }
                Kind::Name(
                    "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "union"
                    | "macro_rules",
                ) if depth == 0 => {
                    let ahead = if self.peek(1) == Kind::Mark('!') { 2 } else { 1 };
                    if let Kind::Name(name) = self.peek(ahead)
                        && !["fn", "unsafe", "extern", "mut", "async"].contains(&name)
                    {
                        module.items.insert(name.to_owned());
                        self.place += ahead;
                    }
                    self.place += 1;
                    public = false;
                }
                Kind::Name(name) => {
                    let line = self.line();
                    let begins = after != Kind::Separator && after != Kind::Mark('.');
                    let mut path = vec![name.to_owned()];
                    self.place += 1;
                    while let (Kind::Separator, Kind::Name(next)) = (self.peek(0), self.peek(1)) {
                        path.push(next.to_owned());
                        self.place += 2;
                    }
                    if begins {
                        used.insert(name.to_owned());
                        if path.len() > 1 {
                            module.mentions.push(Mention { path, line });
                        }
                    }
                }
                Kind::Mark(mark) => {
                    depth = match mark {
                        '{' => depth + 1,
                        '}' => depth.saturating_sub(1),
                        _ => depth,
                    };
                    self.place += 1;
                }
                Kind::Separator | Kind::Text(_) => self.place += 1,
            }
        }
        module.mentions.extend(doors.into_iter().filter(|door| used.contains(&door.path[0])));
        self.found.0.insert(at.clone(), module);
    }

    /// Reads an attribute; its `#` is next.
    fn attribute(&mut self) -> Attribute {
        let begin = self.place;
        let inner = self.peek(1) == Kind::Mark('!');
        self.place += 1 + usize::from(inner);
        if self.peek(0) != Kind::Mark('[') {
            return Attribute::Other;
        }
        self.skip_balanced();
        let kinds: Vec<Kind<'_>> = self.tokens[begin..self.place].iter().map(|token| token.kind).collect();
        let names: Vec<&str> = kinds.iter().filter_map(|kind| kind.name()).collect();
        let negated =
            kinds.windows(3).any(|three| three == [Kind::Name("not"), Kind::Mark('('), Kind::Name("test")]);
        let text = kinds.iter().find_map(|kind| match kind {
            Kind::Text(text) => Some(*text),
            _ => None,
        });
        match (names.as_slice(), text) {
            (["test"], _) => Attribute::Test { whole_file: false },
            (["cfg", conditions @ ..], _)
                if conditions.contains(&"test") && !conditions.contains(&"any") && !negated =>
            {
                Attribute::Test { whole_file: inner }
            }
            (["path"], Some(path)) => Attribute::Path(path.to_owned()),
            _ => Attribute::Other,
        }
    }

    /// Skips the item of an attribute: up to a `;`, a `,` or the end of its block.
    fn skip_item(&mut self) {
        while self.peek(0) == Kind::Mark('#') {
            self.attribute();
        }
        let is_use = (0..8)
            .map(|ahead| self.peek(ahead))
            .take_while(|kind| *kind != Kind::Mark(';'))
            .any(|kind| kind == Kind::Name("use"));
        loop {
            match self.peek(0) {
                Kind::End | Kind::Mark('}') => return,
                Kind::Mark(';' | ',') => {
                    self.place += 1;
                    return;
                }
                Kind::Mark('{') => {
                    self.skip_balanced();
                    if !is_use {
                        return;
                    }
                }
                Kind::Mark('(' | '[') => self.skip_balanced(),
                _ => self.place += 1,
            }
        }
    }

    /// Skips from the opening bracket, which is next, to the closing one.
    fn skip_balanced(&mut self) {
        let mut depth = 0_usize;
        loop {
            match self.peek(0) {
                Kind::End => return,
                Kind::Mark('(' | '[' | '{') => depth += 1,
                Kind::Mark(')' | ']' | '}') => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.place += 1;
            if depth == 0 {
                return;
            }
        }
    }

    /// Reads the paths between `use` and its `;`, each with the name that it gets; `None` for `*`.
    fn use_tree(&mut self, prefix: &mut Path, leaves: &mut Vec<(Path, Option<String>, usize)>) {
        let kept = prefix.len();
        let line = self.line();
        let mut end = false;
        while !end {
            match self.peek(0) {
                Kind::Name("as") => {
                    if let Kind::Name(name) = self.peek(1) {
                        leaves.push((prefix.clone(), Some(name.to_owned()), line));
                    }
                    self.place += 2;
                    prefix.truncate(kept);
                    return;
                }
                Kind::Name("self") if !prefix.is_empty() => self.place += 1,
                Kind::Name(name) => {
                    prefix.push(name.to_owned());
                    self.place += 1;
                }
                Kind::Separator => self.place += 1,
                Kind::Mark('*') => {
                    leaves.push((prefix.clone(), None, line));
                    self.place += 1;
                    prefix.truncate(kept);
                    return;
                }
                Kind::Mark('{') => {
                    self.place += 1;
                    while !matches!(self.peek(0), Kind::Mark('}') | Kind::End) {
                        self.use_tree(prefix, leaves);
                        self.place += usize::from(self.peek(0) == Kind::Mark(','));
                    }
                    self.place += 1;
                    prefix.truncate(kept);
                    return;
                }
                _ => end = true,
            }
        }
        if let Some(name) = prefix.last().cloned() {
            leaves.push((prefix.clone(), Some(name), line));
        } else {
            // Not the beginning of a path: advance.
            self.place += 1;
        }
        prefix.truncate(kept);
    }
}

enum Attribute {
    /// `#[test]`, `#[cfg(test)]` and the like; with `!` the latter applies to a whole file.
    Test {
        whole_file: bool,
    },
    Path(String),
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind<'a> {
    Name(&'a str),
    /// `::`
    Separator,
    Mark(char),
    /// The text of a literal.
    Text(&'a str),
    End,
}

impl<'a> Kind<'a> {
    fn name(self) -> Option<&'a str> {
        match self {
            Kind::Name(name) => Some(name),
            _ => None,
        }
    }
}

struct Token<'a> {
    kind: Kind<'a>,
    line: usize,
}

/// A token as it is found.
enum Lexed {
    Name(String),
    Separator,
    Mark(char),
    Text(String),
}

/// The tokens of a source file, without comments, lifetimes and numbers; none of a file that is not Rust.
fn lex(text: &str) -> Vec<(Lexed, usize)> {
    let mut tokens = Vec::new();
    flatten(text.parse().unwrap_or_default(), &mut tokens);
    tokens
}

fn flatten(stream: TokenStream, into: &mut Vec<(Lexed, usize)>) {
    let mut trees = stream.into_iter().peekable();
    while let Some(tree) = trees.next() {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Ident(name) => {
                into.push((Lexed::Name(name.to_string().trim_start_matches("r#").to_owned()), line));
            }
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ('(', ')'),
                    Delimiter::Brace => ('{', '}'),
                    Delimiter::Bracket => ('[', ']'),
                    Delimiter::None => (' ', ' '),
                };
                into.push((Lexed::Mark(open), line));
                flatten(group.stream(), into);
                into.push((Lexed::Mark(close), group.span_close().start().line));
            }
            TokenTree::Literal(literal) => {
                let literal = literal.to_string();
                let ends = literal.find('"').zip(literal.rfind('"'));
                // A character may be one quote.
                let text = ends.and_then(|(begin, end)| literal.get(begin + 1..end));
                into.extend(text.map(|text| (Lexed::Text(text.to_owned()), line)));
            }
            TokenTree::Punct(mark) => match (mark.as_char(), mark.spacing(), trees.peek()) {
                (':', Spacing::Joint, Some(TokenTree::Punct(next))) if next.as_char() == ':' => {
                    trees.next();
                    into.push((Lexed::Separator, line));
                }
                // A lifetime.
                ('\'', _, _) => drop(trees.next()),
                (mark, _, _) => into.push((Lexed::Mark(mark), line)),
            },
        }
    }
}

/// The same, as the reader sees them.
fn tokens(lexed: &[(Lexed, usize)]) -> Vec<Token<'_>> {
    let kind = |lexed| match lexed {
        &Lexed::Mark(mark) => Kind::Mark(mark),
        Lexed::Name(name) => Kind::Name(name),
        Lexed::Separator => Kind::Separator,
        Lexed::Text(text) => Kind::Text(text),
    };
    lexed.iter().map(|(lexed, line)| Token { kind: kind(lexed), line: *line }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tree::fabricated;
    use super::*;

    /// `from:line to` of each import, for files of a crate in `c/src`.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<(String, &str)> =
            files.iter().map(|(path, text)| (format!("c/src/{path}"), *text)).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let (_keep, tree) = fabricated::tree(&files);
        let short = |path: &str| path.trim_start_matches("c/src/").to_owned();
        imports(&tree, "c/src/lib.rs")
            .into_iter()
            .map(|Import { from, to, line }| format!("{}:{line} {}", short(&from), short(&to)))
            .collect()
    }

    #[test]
    fn a_reexport_is_no_import_and_paths_resolve_through_it() {
        let found = found(&[
            ("lib.rs", "mod error;\nmod log;\npub use error::Error;\n"),
            ("error.rs", "pub struct Error;\n"),
            ("log/mod.rs", "mod block;\npub(crate) use block::{Block, Kind as Sort};\n"),
            ("log/block.rs", "use crate::Error;\npub struct Block;\npub enum Kind {}\n"),
        ]);
        assert_eq!(found, ["log/block.rs:1 error.rs"]);
    }

    #[test]
    fn paths_in_code_are_imports_and_those_in_comments_strings_and_tests_are_not() {
        let found = found(&[
            ("lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\n#[cfg(test)]\nmod e;\n"),
            (
                "a.rs",
                "use crate::b;\n/* crate::c::x */\nfn f<'a>(c: char) -> &'a str {\n    if c == '\"' { b::g() }\n    \
                 crate::d::h();\n    \"crate::c::x\" // crate::c::x\n}\n#[cfg(test)]\nmod tests {\n    use crate::c::x;\n}\n\
                 #[cfg(all(test, not(loom)))]\nuse crate::c::{x};\n",
            ),
            ("b.rs", "pub fn g() {}\n"),
            ("c.rs", "pub fn x() {}\n"),
            ("d.rs", "#[cfg(not(test))]\nuse super::c::x;\npub fn h() {}\n"),
            ("e.rs", "use crate::a::f;\n"),
        ]);
        assert_eq!(found, ["a.rs:1 b.rs", "a.rs:5 d.rs", "d.rs:2 c.rs"]);
    }

    #[test]
    fn a_reexport_is_an_import_of_a_file_that_uses_the_reexported_item() {
        let found = found(&[
            ("lib.rs", "mod a;\npub use a::{A, B};\nfn f(a: A) {}\n"),
            ("a.rs", "pub struct A;\npub struct B;\n"),
        ]);
        assert_eq!(found, ["lib.rs:2 a.rs"]);
    }

    #[test]
    fn modules_inside_a_file_and_by_path_are_followed() {
        let found = found(&[
            ("lib.rs", "mod a;\npub mod door {\n    pub use super::a::machine::run;\n}\nmod b;\n"),
            ("a/mod.rs", "#[path = \"x86.rs\"]\npub mod machine;\npub const SIZE: usize = 1;\n"),
            ("a/x86.rs", "use super::SIZE;\npub fn run() {}\n"),
            ("b.rs", "fn f() { crate::door::run() }\n"),
        ]);
        assert_eq!(found, ["a/x86.rs:1 a/mod.rs", "b.rs:1 a/x86.rs"]);
    }
}
