import os,shutil,re
os.chdir('crates/server/src')
def sub(path, *pairs):
    s=open(path).read()
    for a,b in pairs:
        if a not in s: print("MISSING", path, repr(a[:80])); continue
        s=s.replace(a,b,1)
    open(path,'w').write(s)
B='drafts/blk/'
w=open(B+'waiting.rs').read()
w=w.replace("    /// Which client.\n    pub client: u64,","    /// Which client.\n    pub client: Arc<Client>,").replace("    #[expect(clippy::too_many_arguments, reason = \"each is a field\")]\n","").replace("        client: u64,\n        worker: usize,","        client: Arc<Client>,\n        worker: usize,").replace("use crate::command::OwnedArgs;","use crate::clients::Client;\nuse crate::command::OwnedArgs;")
w=w.replace('''    /// Begins to try its command; false when somebody else does, who tries again then, or it waits no more.
    pub fn begin(&self) -> bool {
        loop {
            // SeqCst: rare, and one order of all that happens to it is easy to follow.
            if self.swap(WAITING, TRYING) {
                return true;
            }
            match self.state.load(Ordering::SeqCst) {
                WAITING => {}
                TRYING if !self.swap(TRYING, TRYING_AGAIN) => {}
                _ => return false,
            }
        }
    }''','''    /// Begins to try its command, unless somebody does, who then tries once more.
    pub fn begin(&self) -> Begun {
        loop {
            // SeqCst: rare, and one order of all that happens to it is easy to follow.
            if self.swap(WAITING, TRYING) {
                return Begun::Mine;
            }
            match self.state.load(Ordering::SeqCst) {
                WAITING => {}
                DONE => return Begun::Over,
                TRYING if !self.swap(TRYING, TRYING_AGAIN) => {}
                _ => return Begun::Others,
            }
        }
    }''').replace('''/// What came of a try.''','''/// Whose a try is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// The caller's.
    Mine,
    /// Somebody else's.
    Others,
    /// It waits no more.
    Over,
}

/// What came of a try.''')
w=w.replace("queues.by_client.insert(waiter.client, (number","queues.by_client.insert(waiter.client.id, (number")
w=w.replace('''    pub fn leave(&self, waiter: &Waiter) {
        let mut queues = self.lock();
        let Some((number, _)) = queues.by_client.remove(&waiter.client) else { return };''','''    pub fn leave(&self, waiter: &Arc<Waiter>) {
        let mut queues = self.lock();
        let id = waiter.client.id;
        let number = match queues.by_client.get(&id) {
            Some((number, found)) if Arc::ptr_eq(found, waiter) => *number,
            // Somebody else took it out.
            _ => return,
        };
        queues.by_client.remove(&id);''')
w=w.replace('''    fn places(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        let args = self.args.args();
        args.from(self.keys.0).take(self.keys.1).map(|key| place(self.db, key)).collect::<Vec<_>>().into_iter()
    }''','''    fn places(&self) -> Vec<Vec<u8>> {
        let args = self.args.args();
        args.from(self.keys.0).take(self.keys.1).map(|key| place(self.db, key)).collect()
    }''')
w=w.replace("size_of::<Self>() + self.args.bytes()","size_of::<Self>() + self.args.bytes()")
open('waiting.rs','w').write(w)
shutil.copy(B+'list_blocking.rs','command/list/blocking.rs')
shutil.copy(B+'zset_blocking.rs','command/sorted_set/blocking.rs')
shutil.copy(B+'timeout.rs','command/timeout.rs')
sub('command/list/blocking.rs',("use super::pop::{Many, popped, take};\nuse super::relocate::relocate;\nuse super::end;","use super::end;\nuse super::pop::{Many, popped, take};\nuse super::relocate::relocate;"),
("let is_gone = take(list, &mut call.reply, end, 1, &mut taken)?;","let is_gone = take(list, &mut call.reply, end, 1, |element| taken.push(element.to_vec()))?;"))
sub('command/list/pop.rs',("take(list, &mut call.reply, end, 1)?)","take(list, &mut call.reply, end, 1, |_| ())?)"),("take(list, &mut call.reply, end, count)?);","take(list, &mut call.reply, end, count, |_| ())?);"))
s=open('command/list/pop.rs').read()
i=s.index("/// LMPOP numkeys"); j=s.index("/// The event of elements")
s=s[:i]+'''/// LMPOP numkeys key [key …] LEFT|RIGHT [COUNT count]: LPOP or RPOP of the first of these lists that is there, with its key.
pub fn lmpop(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let many = Many::parse(call.args)?;
    if !many.pop(call, call.args)? {
        call.reply.null_array();
    }
    Ok(())
}

/// What LMPOP and BLMPOP are told.
pub struct Many {
    /// How many keys, from the third argument on.
    pub keys: usize,
    end: End,
    count: usize,
}

impl Many {
    /// Reads the arguments of LMPOP.
    pub fn parse(args: Args<'_>) -> Result<Self, CommandError> {
        let keys = args.positive(1).ok_or(errors::NO_KEYS)?;
        let behind = keys.saturating_add(2);
        let end = end(args, behind)?;
        let mut count = None;
        for at in (behind + 1..args.len()).step_by(2) {
            if count.is_some() || !args.is(at, "count") || at + 1 == args.len() {
                return Err(errors::SYNTAX);
            }
            let given = args.positive(at + 1);
            count = Some(given.ok_or(CommandError::new("ERR count should be greater than 0"))?);
        }
        Ok(Self { keys, end, count: count.unwrap_or(1) })
    }

    /// Takes from the first list that has something; false when none has.
    pub fn pop(&self, call: &mut Call<'_, '_>, args: Args<'_>) -> Result<bool, CommandError> {
        let Self { keys, end, count } = *self;
        for key in args.from(2).take(keys) {
            let list = match call.txn.edit_list(call.session.db, key) {
                Err(Error::WrongType) if call.is_waiting => continue,
                list => list?,
            };
            if !list.is_empty() {
                call.reply.array(2);
                call.reply.bulk(key);
                call.reply.array(count.min(list.len()));
                let (mut taken, keeps) = (Vec::new(), call.is_waiting);
                let is_gone = take(list, &mut call.reply, end, count, |element| {
                    if keeps {
                        taken.push(element.to_vec());
                    }
                })?;
                call.undo_pop(end, key, taken);
                call.notify_or_gone(LIST, popped(end), key, is_gone);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Removes elements and replies with them, whose number was written before. Whether none are left.
pub fn take(
    mut list: EditList<'_, '_>,
    reply: &mut Reply<'_>,
    end: End,
    count: usize,
    mut each: impl FnMut(&[u8]),
) -> Result<bool, CommandError> {
    list.pop(end, count, |element| {
        reply.bulk(element);
        each(element);
    })?;
    let is_gone = list.is_empty();
    list.save()?;
    Ok(is_gone)
}

'''+s[j:]
s=s.replace("use crate::command::{Call, CommandError, errors};","use crate::command::{Args, Call, CommandError, errors};").replace("use duramen_structures::{EditList, End};","use duramen_structures::{EditList, End, Error};")
open('command/list/pop.rs','w').write(s)
sub('command/list/relocate.rs',("\nfn relocate(","\n/// From that end of the one to that end of the other.\npub fn relocate("))
sub('command/list/mod.rs',("mod change;","mod blocking;\nmod change;"),('    Command::new("llen", get::llen),','    Command::new("blpop", blocking::blpop),\n    Command::new("brpop", blocking::brpop),\n    Command::new("blmpop", blocking::blmpop),\n    Command::new("blmove", blocking::blmove),\n    Command::new("brpoplpush", blocking::brpoplpush),\n    Command::new("llen", get::llen),'))
s=open('command/sorted_set/pop.rs').read()
i=s.index("/// ZMPOP numkeys"); j=s.index("fn pop_from(")
s=s[:i]+'''/// ZMPOP numkeys key [key …] MIN | MAX [COUNT count]: ZPOPMIN or ZPOPMAX of the first key that is there.
pub fn zmpop(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let many = Many::parse(call.args)?;
    if !many.pop(call, call.args)? {
        call.reply.null_array();
    }
    Ok(())
}

/// What ZMPOP and BZMPOP are told.
pub struct Many {
    /// How many keys, from the third argument on.
    pub keys: usize,
    end: End,
    count: usize,
}

impl Many {
    /// Reads the arguments of ZMPOP.
    pub fn parse(args: Args<'_>) -> Result<Self, CommandError> {
        let keys = positive(args, 1, "ERR numkeys should be greater than 0")?;
        let end_at = keys.saturating_add(2);
        let end = match () {
            () if args.is(end_at, "min") => End::Min,
            () if args.is(end_at, "max") => End::Max,
            () => return Err(errors::SYNTAX),
        };
        let count = match args.len() - end_at - 1 {
            0 => 1,
            2.. if args.is(end_at + 1, "count") => {
                let count = positive(args, end_at + 2, "ERR count should be greater than 0")?;
                if args.len() > end_at + 3 {
                    return Err(errors::SYNTAX);
                }
                count
            }
            _ => return Err(errors::SYNTAX),
        };
        Ok(Self { keys, end, count })
    }

    /// Takes from the first key that is there; false when none is.
    pub fn pop(&self, call: &mut Call<'_, '_>, args: Args<'_>) -> Result<bool, CommandError> {
        for key in args.from(2).take(self.keys) {
            // Types are looked at up to the first key that is there, as in the reference.
            let is_there = match call.txn.sorted_set(call.session.db, key) {
                Err(Error::WrongType) if call.is_waiting => false,
                set => set?.is_some(),
            };
            if is_there {
                pop(call, key, self.end, self.count, |reply, members| {
                    reply.array(2);
                    reply.bulk(key);
                    reply.array(members.len());
                    for (member, score) in members {
                        reply.array(2);
                        reply.bulk(member);
                        reply_score(reply, *score);
                    }
                })?;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

'''+s[j:]
s=s.replace("use crate::command::{Call, CommandError, errors};","use crate::command::{Args, Call, CommandError, errors};").replace("#[derive(Clone, Copy)]\nenum End {","#[derive(Clone, Copy)]\npub enum End {\n    /// The lowest scores.",1).replace("    Min,\n    Max,\n}","    Min,\n    /// The highest.\n    Max,\n}",1)
s=s.replace("\nfn pop(\n","\n/// Takes so many members of a key, and has them written.\npub fn pop(\n",1)
s=s.replace("    reply(&mut call.reply, members);\n","    reply(&mut call.reply, members);\n    if call.is_waiting {\n        let mut undo = vec![b\"ZADD\".to_vec(), key.to_vec()];\n        for (member, score) in members.iter() {\n            undo.extend([double::text(*score).into_bytes(), member.to_vec()]);\n        }\n        call.local.undo = Some(undo);\n    }\n",1)
s=s.replace("use crate::resp::Reply;","use crate::resp::Reply;\nuse duramen_structures::Error;\nuse duramen_structures::strings::double;",1)
open('command/sorted_set/pop.rs','w').write(s)
print(re.findall(r"mod pop;",open('command/sorted_set/mod.rs').read()))
sub('command/sorted_set/mod.rs',("mod change;","mod blocking;\nmod change;"),('    Command::new("zmpop", pop::zmpop),','    Command::new("zmpop", pop::zmpop),\n    Command::new("bzpopmin", blocking::bzpopmin),\n    Command::new("bzpopmax", blocking::bzpopmax),\n    Command::new("bzmpop", blocking::bzmpop),'))
sub('command/mod.rs',("mod table;","mod table;\nmod timeout;"),("pub use spec::Spec;","pub use spec::Spec;\npub use timeout::timeout;"))
sub('command/args.rs',("impl OwnedArgs {","impl OwnedArgs {\n    /// Those of a command that is put together.\n    pub fn of(parts: &[Vec<u8>]) -> Self {\n        let mut buffer = Vec::new();\n        let spans = parts.iter().map(|part| {\n            let start = buffer.len();\n            buffer.extend_from_slice(part);\n            Span { start, end: buffer.len() }\n        });\n        let spans = spans.collect();\n        Self { buffer: buffer.into_boxed_slice(), spans }\n    }\n"))
sub('command/call.rs',("    /// Run by EXEC.\n    pub in_transaction: bool,","    /// Run by EXEC.\n    pub in_transaction: bool,\n    /// Run again for a client that waits: what is of another type is not there.\n    pub is_waiting: bool,"),
("            in_transaction: true,","            in_transaction: true,\n            is_waiting: false,"),
("    /// Swap two databases.","    /// Wait for a key.\n    Wait(Wait),\n    /// Swap two databases."),
("    /// Tells of an event of a key in the selected database.","""    /// The command waits; inside MULTI it does not, and answers as if the time were up.
    pub fn wait(&mut self, wait: Wait) {
        if !self.in_transaction {
            *self.after = After::Wait(wait);
        } else if wait.null_is_array {
            self.reply.null_array();
        } else {
            self.reply.null();
        }
    }

    /// Notes how to put elements back that were taken for a client that waits, should it have gone.
    pub fn undo_pop(&mut self, end: End, key: &[u8], mut taken: Vec<Vec<u8>>) {
        if self.is_waiting {
            let push = match end {
                End::Left => b"LPUSH",
                End::Right => b"RPUSH",
            };
            // The last one that was taken goes back first.
            taken.extend([key.to_vec(), push.to_vec()]);
            taken.reverse();
            self.local.undo = Some(taken);
        }
    }

    /// Tells of an event of a key in the selected database."""),
("use duramen_structures::Txn;","use crate::waiting::Wait;\nuse duramen_structures::{End, Txn};"))
sub('lib.rs',("pub mod stats;","pub mod stats;\npub mod waiting;"))
sub('local.rs',("    /// Messages of the turn that runs.","    /// How to take back what a command took for a client that waits.\n    pub undo: Option<Vec<Vec<u8>>>,\n    /// Messages of the turn that runs."))
sub('server.rs',("    /// Messages on their way.","    /// Who waits for keys.\n    pub waiting: Waiting,\n    /// Messages on their way."),("            delivery: Delivery::default(),","            waiting: Waiting::default(),\n            delivery: Delivery::default(),"),("use duramen::OnDamage;","use crate::waiting::Waiting;\nuse duramen::OnDamage;"))
sub('messages/message.rs',("/// See [`Message`].","""/// How to take back what was taken for a client that has gone.
#[derive(Clone, Debug)]
pub struct Undo {
    /// In which database.
    pub db: u8,
    /// The command that does it.
    pub args: Vec<Vec<u8>>,
}

/// See [`Message`]."""),("    /// SPUBLISH.","""    /// The reply to a command that waited.
    Reply {
        /// For this client.
        client: Arc<Client>,
        /// What it is told.
        bytes: Box<[u8]>,
        /// When it has gone.
        undo: Option<Undo>,
    },
    /// SPUBLISH."""),("//! What a message says.\n","//! What a message says.\n\nuse crate::clients::Client;\nuse std::sync::Arc;\n"))
sub('messages/mod.rs',("pub use message::{Content, Message};","pub use message::{Content, Message, Undo};"))
sub('messages/delivery.rs',("        if !is_settled {\n            outgoing.take_back(0);\n        }","        if !is_settled {\n            outgoing.fail();\n        }"),
("    /// Takes back all but the first `count`.","""    /// The turn was not made durable: nobody is told of it, but who waits for a reply gets an error.
    fn fail(&mut self) {
        for (sequence, letter) in &mut self.letters {
            *letter = letter.take().and_then(|letter| {
                let Content::Reply { client, .. } = &letter.message.content else { return None };
                let content = Content::Reply { client: Arc::clone(client), bytes: FAILED.into(), undo: None };
                Some(Letter { message: Arc::new(Message { sequence: *sequence, content }), ..letter })
            });
        }
    }

    /// Takes back all but the first `count`."""),
("#[derive(Default)]\nstruct Queue {","// Of a turn that was not made durable.\nconst FAILED: &[u8] = b\"-MISCONF writes could not be made durable; they may be kept or not; the server's log has more\\r\\n\";\n\n#[derive(Default)]\nstruct Queue {"))
sub('messages/subscribers.rs',("            Content::Shard { channel, .. } => (Kind::Shard, channel),","            Content::Shard { channel, .. } => (Kind::Shard, channel),\n            Content::Reply { client, .. } => return clients.push(client.id),"))
sub('session.rs',("    /// No further command before this moment (DEBUG SLEEP).\n    pub paused_until: Option<Instant>,","    /// No further command before this moment.\n    pub paused_until: Option<Instant>,\n    /// Nor are replies sent before (DEBUG SLEEP).\n    pub holds_replies: bool,\n    /// What it waits for.\n    pub blocked: Option<Arc<Waiter>>,"),
("            paused_until: None,","            paused_until: None,\n            holds_replies: false,\n            blocked: None,"),
("        self.multi_bytes() + self","        let waiter = self.blocked.as_ref().map_or(0, |waiter| waiter.bytes());\n        waiter + self.multi_bytes() + self"),
("use duramen_structures::Watched;","use crate::waiting::Waiter;\nuse duramen_structures::Watched;"))
sub('command/admin/debug.rs',("            call.session.paused_until = Some(Instant::now() + sleep);","            call.session.paused_until = Some(Instant::now() + sleep);\n            call.session.holds_replies = true;"))
# local
sub('local.rs',("        self.unsubscribe_all(server, session);\n    }\n}","""        self.unsubscribe_all(server, session);
        if let Some(waiter) = session.blocked.take()
            && waiter.end()
        {
            server.waiting.leave(&waiter);
        }
    }

    /// Ends a client's wait with this reply, unless it is being answered.
    pub fn end_wait(&mut self, server: &Server, waiter: &Arc<Waiter>, bytes: &[u8]) -> bool {
        if !waiter.end() {
            return false;
        }
        server.waiting.leave(waiter);
        let content = Content::Reply { client: Arc::clone(&waiter.client), bytes: bytes.into(), undo: None };
        server.delivery.add(&mut self.outgoing, content, vec![waiter.worker as u32]);
        true
    }
}"""),("use crate::session::Session;","use crate::session::Session;\nuse crate::waiting::Waiter;\nuse std::sync::Arc;"))
# dispatch
sub('command/dispatch.rs',
("            Self::apply(worker.begin(self.now), running, session, local, out, &mut after)\n        });","            Self::apply(worker.begin(self.now), running, session, local, out, &mut after)\n        });"),
("                now: self.now,\n            };","                now: self.now,\n                is_waiting: false,\n            };"),
("    stats: &'a WorkerStats,\n    now: u64,\n}","    stats: &'a WorkerStats,\n    now: u64,\n    is_waiting: bool,\n}"),
("            in_transaction: false,","            in_transaction: false,\n            is_waiting: running.is_waiting,"),
("            After::Nothing => {}\n","            After::Nothing | After::Wait(_) => {}\n"),
("        let failed = done.err();","""        let ready = match &done {
            Ok(()) if entry.spec.flags.has(Flags::WRITE) || entry.spec.name == "exec" => {
                self.ready(entry, session, db, args)
            }
            _ => VecDeque::new(),
        };
        let failed = done.err();"""),
("            self.note(error);\n        }\n    }\n\n    /// One try","""            self.note(error);
        } else if let After::Wait(wait) = after {
            self.wait(entry, session, args, wait, out);
        }
        if !ready.is_empty() {
            self.serve(ready);
        }
    }

    /// One try"""),
("    /// Begins a turn: what follows","""    /// Puts back what was taken for a client that has gone.
    pub fn undo(&mut self, client: &Arc<Client>, undo: &Undo) {
        self.undone.push((Arc::clone(client), undo.clone()));
    }

    /// Whether there is something to do without a request.
    pub const fn has_work(&self) -> bool {
        !self.undone.is_empty()
    }

    /// Begins a turn: what follows"""),
("        self.now = unix_millis();\n    }","""        self.now = unix_millis();
        for (client, Undo { db, args }) in std::mem::take(&mut self.undone) {
            let args = OwnedArgs::of(&args);
            if let Some(entry) = self.table.find(args.args()) {
                let mut session = Session::new(client, true);
                session.db = db;
                // What it answers is for nobody.
                self.run(entry, &mut session, args.args(), &mut Output::default());
            }
        }
    }"""),
("    // Messages before the command that runs.","    // To be put back by the next turn.\n    undone: Vec<(Arc<Client>, Undo)>,\n    // Messages before the command that runs."),
("            outgoing_before: 0,","            undone: Vec::new(),\n            outgoing_before: 0,"),
("use super::{After, Args, Call, CommandError, Entry, Flags, Table, errors};","use super::{After, Args, Call, CommandError, Entry, Flags, OwnedArgs, Table, errors};\nuse crate::clients::Client;"),
("use crate::net::Output;","use crate::messages::{Content, Undo};\nuse crate::net::Output;"),
("use duramen_structures::{Outcome","use crate::waiting::{Begun, Tried, Wait, Waiter, Waiting};\nuse duramen_structures::{Outcome"),
("use std::panic::","use std::collections::VecDeque;\nuse std::panic::"))
open('command/waiters.rs','w').write('''//! The dispatcher's part in waiting for keys: who waits, and who is served. See [`waiting`](crate::waiting).

use super::dispatch::{Dispatcher, Running};
use super::{After, Args, Entry};
use crate::messages::{Content, Undo};
use crate::net::Output;
use crate::resp::Reply;
use crate::session::Session;
use crate::waiting::{Begun, Tried, Wait, Waiter, Waiting};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

// A wait without end is as long as anybody keeps a connection.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

impl Dispatcher {
    /// The keys that a command may have given something, if anybody waits at all.
    pub(super) fn ready(
        &self,
        entry: &Entry,
        session: &Session,
        db: u8,
        args: Args<'_>,
    ) -> VecDeque<(u8, Vec<u8>)> {
        let mut ready = VecDeque::new();
        if self.server.waiting.count() == 0 {
            return ready;
        }
        match (entry.spec.name, &session.transaction) {
            ("exec", Some(transaction)) => {
                for queued in &transaction.queue {
                    let entry = self.table.entry(queued.command);
                    // SELECT may have changed the database in between.
                    for db in [db, session.db] {
                        self.ready_of(entry, db, queued.args.args(), &mut ready);
                    }
                }
                if transaction.queue.iter().any(|queued| self.table.entry(queued.command).spec.name == "select") {
                    ready.clear();
                    self.ready_everywhere(&mut ready);
                }
            }
            _ => self.ready_of(entry, db, args, &mut ready),
        }
        ready
    }

    fn ready_of(&self, entry: &Entry, db: u8, args: Args<'_>, ready: &mut VecDeque<(u8, Vec<u8>)>) {
        if matches!(entry.spec.name, "swapdb" | "move" | "copy") {
            return self.ready_everywhere(ready);
        }
        match entry.spec.keys(args) {
            Some(keys) => ready.extend(keys.map(|key| (db, args.at(key.index).to_vec()))),
            // The arguments do not tell: any of them may be one.
            None => ready.extend(args.from(1).map(|key| (db, key.to_vec()))),
        }
    }

    fn ready_everywhere(&self, ready: &mut VecDeque<(u8, Vec<u8>)>) {
        for db in 0..self.server.keyspace.databases() {
            ready.extend(self.server.waiting.keys(db).into_iter().map(|key| (db, key)));
        }
    }

    /// Runs the commands of those who wait for these keys, until they find nothing.
    pub(super) fn serve(&mut self, mut ready: VecDeque<(u8, Vec<u8>)>) {
        while let Some((db, key)) = ready.pop_front() {
            for kind in Waiting::kinds() {
                while let Some(waiter) = self.server.waiting.first(db, &key, kind) {
                    match waiter.begin() {
                        Begun::Others => break,
                        Begun::Over => {
                            self.server.waiting.leave(&waiter);
                            continue;
                        }
                        Begun::Mine => {}
                    }
                    let Some((bytes, undo)) = self.try_waiter(&waiter) else { break };
                    self.server.waiting.leave(&waiter);
                    ready.extend(self.written_by(&waiter));
                    let content = Content::Reply { client: Arc::clone(&waiter.client), bytes, undo };
                    self.server.delivery.add(&mut self.local.outgoing, content, vec![waiter.worker as u32]);
                }
            }
        }
    }

    /// The keys that a waiter's own command may have given something.
    fn written_by(&self, waiter: &Waiter) -> Vec<(u8, Vec<u8>)> {
        let mut ready = VecDeque::new();
        self.ready_of(self.table.entry(waiter.command), waiter.db, waiter.args.args(), &mut ready);
        ready.into()
    }

    /// Runs a waiter's command, which is being tried by the caller. `None`: it waits on.
    fn try_waiter(&mut self, waiter: &Arc<Waiter>) -> Option<(Box<[u8]>, Option<Undo>)> {
        let entry = self.table.entry(waiter.command);
        loop {
            let mut session = Session::new(Arc::clone(&waiter.client), true);
            (session.db, session.protocol) = (waiter.db, waiter.protocol);
            let (mut out, mut after) = (Output::default(), After::Nothing);
            self.local.undo = None;
            let before = self.local.outgoing.len();
            let local = &mut self.local;
            let mut again = false;
            let tried = self.worker.retry(|worker| {
                if std::mem::replace(&mut again, true) {
                    out.truncate(0);
                    after = After::Nothing;
                    local.undo = None;
                    local.outgoing.take_back(before);
                }
                let running = Running {
                    entry,
                    table: self.table,
                    args: waiter.args.args(),
                    server: &self.server,
                    stats: &self.stats,
                    now: self.now,
                    is_waiting: true,
                };
                Self::apply(worker.begin(self.now), running, &mut session, local, &mut out, &mut after)
            });
            let undo = self.local.undo.take().map(|args| Undo { db: waiter.db, args });
            match tried {
                Ok(()) if matches!(after, After::Wait(_)) => match waiter.found_nothing() {
                    Tried::Waits => return None,
                    Tried::Again => {}
                },
                Ok(()) => {
                    waiter.done();
                    return Some((out.bytes.into(), undo));
                }
                Err(error) => {
                    waiter.done();
                    self.local.outgoing.take_back(before);
                    self.stats.error(error.code());
                    out.truncate(0);
                    Reply::new(&mut out, waiter.protocol).error(error.text());
                    self.note(error);
                    return Some((out.bytes.into(), None));
                }
            }
        }
    }

    /// A command found nothing: its client waits, unless there is something now.
    pub(super) fn wait(
        &mut self,
        entry: &Entry,
        session: &mut Session,
        args: Args<'_>,
        wait: Wait,
        out: &mut Output,
    ) {
        let (client, worker) = (Arc::clone(&session.client), self.local.worker);
        let args = args.to_owned();
        let waiter = Waiter::new(client, worker, entry.index, args, session.db, session.protocol, wait);
        let waiter = Arc::new(waiter);
        self.server.waiting.enter(&waiter);
        // Who wrote before it was entered did not see it.
        if let Some((bytes, _)) = self.try_waiter(&waiter) {
            self.server.waiting.leave(&waiter);
            out.bytes.extend_from_slice(&bytes);
            let ready = self.written_by(&waiter);
            self.serve(ready.into());
            return;
        }
        session.paused_until = Some(wait.until.unwrap_or_else(|| Instant::now() + FOR_EVER));
        session.holds_replies = false;
        session.blocked = Some(waiter);
    }

    /// A client's time has come: it goes on. One that waited for a key is told that there was nothing.
    pub fn resume(&mut self, session: &mut Session, out: &mut Output) {
        if let Some(waiter) = &session.blocked {
            if !waiter.end() {
                // Somebody has something for it: the reply is on its way.
                session.paused_until = Some(Instant::now() + FOR_EVER);
                return;
            }
            self.server.waiting.leave(waiter);
            write_null(&mut Reply::new(out, session.protocol), waiter);
            session.blocked = None;
        }
        session.paused_until = None;
        session.holds_replies = false;
    }
}

/// What a client is told whose time is up.
pub fn write_null(reply: &mut Reply<'_>, waiter: &Waiter) {
    if waiter.null_is_array {
        reply.null_array();
    } else {
        reply.null();
    }
}
''')
sub('command/mod.rs',("mod timeout;","mod timeout;\nmod waiters;"),("pub use timeout::timeout;","pub use timeout::timeout;\npub use waiters::write_null;"))
s=open('command/dispatch.rs').read()
s=s.replace("use crate::messages::{Content, Undo};","use crate::messages::Undo;").replace("use crate::waiting::{Begun, Tried, Wait, Waiter, Waiting};\n","")
for f in ['table: &\'static Table,\n    server: Arc<Server>,\n    worker: Worker,\n    stats: Arc<WorkerStats>,\n    local: Local,']:
    assert f in s
    s=s.replace(f,f.replace("table:","pub(super) table:").replace("    server:","    pub(super) server:").replace("    worker:","    pub(super) worker:").replace("    stats:","    pub(super) stats:").replace("    local:","    pub(super) local:"),1)
s=s.replace("    running: Option<&'static Entry>,\n    now: u64,","    running: Option<&'static Entry>,\n    pub(super) now: u64,")
i=s.index("#[derive(Clone, Copy)]\nstruct Running"); 
s=s[:i]+re.sub(r"\n    (\w+): ",r"\n    pub(super) \1: ",s[i:s.index("}",i)].replace("struct Running","pub(super) struct Running"))+s[s.index("}",i):]
s=s.replace("    fn apply(\n","    pub(super) fn apply(\n").replace("    fn note(&mut self","    pub(super) fn note(&mut self")
open('command/dispatch.rs','w').write(s)
# net
sub('net/protocol.rs',("    /// A connection has ended.\n    fn leave","    /// No connection of this worker is this message's any more.\n    fn undeliverable(&mut self, message: &Message);\n\n    /// Whether the next turn has something to do, whoever sends requests.\n    fn has_work(&self) -> bool;\n\n    /// The time of [`Conversation::paused_until`] has come. It may be another one afterwards.\n    fn resume(&mut self, conversation: &mut Self::Conversation, output: &mut Output);\n\n    /// A connection has ended.\n    fn leave"),
("    /// Nothing further is executed, and nothing sent, before this moment.\n","    /// Nothing further is executed before this moment.\n"),
("    /// The pause is over.\n    fn go_on(&mut self);","    /// Nor is anything sent before it.\n    fn holds_replies(&self) -> bool;\n\n    /// It waits, and has no more to say when its client has gone.\n    fn is_blocked(&self) -> bool;"))
sub('redis.rs',("    fn go_on(&mut self) {\n        self.session.paused_until = None;\n    }","    fn holds_replies(&self) -> bool {\n        self.session.paused_until.is_some() && self.session.holds_replies\n    }\n\n    fn is_blocked(&self) -> bool {\n        self.session.blocked.is_some()\n    }"),
("        let Some(subscribed) = &self.session.subscribed else { return };\n","""        if let Content::Reply { bytes, .. } = &message.content {
            self.session.blocked = None;
            self.session.paused_until = None;
            if self.session.reply_mode == ReplyMode::On {
                output.bytes.extend_from_slice(bytes);
            }
            return;
        }
        let Some(subscribed) = &self.session.subscribed else { return };
"""),
("        self.session.subscribed.is_some()\n    }\n\n    fn request_bytes","        self.session.subscribed.is_some() || self.session.blocked.is_some()\n    }\n\n    fn request_bytes"),
("    fn leave(&mut self, conversation: &mut Conversation) {","""    fn undeliverable(&mut self, message: &Message) {
        if let Content::Reply { client, undo: Some(undo), .. } = &message.content {
            self.dispatcher.undo(client, undo);
        }
    }

    fn has_work(&self) -> bool {
        self.dispatcher.has_work()
    }

    fn resume(&mut self, conversation: &mut Conversation, output: &mut Output) {
        self.dispatcher.resume(&mut conversation.session, output);
    }

    fn leave(&mut self, conversation: &mut Conversation) {"""),
("    match &message.content {\n        Content::Shard","    match &message.content {\n        Content::Reply { .. } => {}\n        Content::Shard"),
("use crate::session::Session;","use crate::session::{ReplyMode, Session};"))
sub('net/connection.rs',("            return if self.gone { Step::Ends } else { Step::Waits };\n        }\n        self.conversation.go_on();","""            let ends = self.gone || self.read_closed && self.conversation.is_blocked();
            return if ends { Step::Ends } else { Step::Waits };
        }
        if self.conversation.paused_until().is_some() {
            self.take_output(turn);
            turn.protocol.resume(&mut self.conversation, &mut self.output);
            if self.conversation.paused_until().is_some() {
                return Step::Waits;
            }
        }"""),
("        if self.conversation.paused_until().is_some() {\n            return Step::Waits;\n        }\n        while !self.blocked","        if self.conversation.holds_replies() {\n            return Step::Waits;\n        }\n        while !self.blocked"),
("        let goes = (self.input_ready || self.readable && !self.input_over) && !self.backed_up;","        let is_paused = self.conversation.paused_until().is_some();\n        let goes = (self.input_ready || self.readable && !self.input_over) && !self.backed_up && !is_paused;"),
("            if self.input_over && !goes {","            if self.input_over && !goes && !is_paused {"),
("    /// Is in the worker's list of connections with work.","    /// When the worker looks at it again.\n    pub timer: Option<Instant>,\n    /// Is in the worker's list of connections with work."),
("            listed: false,","            timer: None,\n            listed: false,"))
sub('net/worker.rs',("    // Connections with work for the next turn.","    // When to look at which clients again, whose conversations are paused.\n    timers: BTreeSet<(Instant, u64)>,\n    // Connections with work for the next turn."),
("            working: Vec::new(),","            timers: BTreeSet::new(),\n            working: Vec::new(),"),
("use std::collections::HashMap;","use std::collections::{BTreeSet, HashMap};"),
("""        if !self.working.is_empty() {
            Some(Duration::ZERO)
        } else if""","""        if !self.working.is_empty() || self.protocol.has_work() {
            Some(Duration::ZERO)
        } else if let Some((first, _)) = self.timers.first() {
            Some(first.saturating_duration_since(Instant::now()).min(TICK))
        } else if"""),
("        let now = Instant::now();\n        let mut working","        let now = Instant::now();\n        self.ring(now);\n        let mut working"),
("if !working.is_empty() || !mail.is_empty() {","if !working.is_empty() || !mail.is_empty() || self.protocol.has_work() {"),
("                connection.publish(seconds);\n            }","""                connection.publish(seconds);
                let until = connection.conversation.paused_until();
                if connection.timer != until {
                    let id = connection.conversation.client().id;
                    if let Some(before) = std::mem::replace(&mut connection.timer, until) {
                        self.timers.remove(&(before, id));
                    }
                    self.timers.extend(until.map(|until| (until, id)));
                }
            }"""),
("""            } else if connection.conversation.paused_until().is_some_and(|until| until <= now)
                && !connection.listed
            {
                connection.listed = true;
                self.working.push(index);
            }
""","            }\n"),
("    /// Looks at all connections for those that have been idle, paused or over","    /// Looks at all connections for those that have been idle or over"),
("            for client in &clients {\n                let Some(&index) = by_id.get(client) else { continue };\n                let Some(Some(connection)) = connections.get_mut(index) else { continue };","""            for client in &clients {
                let index = by_id.get(client).copied().unwrap_or(usize::MAX);
                let Some(Some(connection)) = connections.get_mut(index) else {
                    turn.protocol.undeliverable(message);
                    continue;
                };"""),
("    /// Steps 2 to 4.","""    /// Lists the connections whose pauses are over.
    fn ring(&mut self, now: Instant) {
        while let Some(&(until, id)) = self.timers.first()
            && until <= now
        {
            self.timers.pop_first();
            let index = self.by_id.get(&id).copied().unwrap_or(usize::MAX);
            let Some(Some(connection)) = self.connections.get_mut(index) else { continue };
            connection.timer = None;
            if !connection.listed {
                connection.listed = true;
                self.working.push(index);
            }
        }
    }

    /// Steps 2 to 4."""),
("        let id = connection.conversation.client().id;\n        self.by_id.remove(&id);","        let id = connection.conversation.client().id;\n        if let Some(timer) = connection.timer {\n            self.timers.remove(&(timer, id));\n        }\n        self.by_id.remove(&id);"))
sub('command/connection/session.rs',("    session.transaction_drop();\n    session.db = 0;","    session.transaction_drop();\n    session.db = 0;"))
sub('command/connection/client/mod.rs',("mod list;\n","mod list;\nmod unblock;\n"),('    Command::new("client|kill", kill::kill),','    Command::new("client|kill", kill::kill),\n    Command::new("client|unblock", unblock::unblock),'))
open('command/connection/client/unblock.rs','w').write('''//! CLIENT UNBLOCK id [TIMEOUT | ERROR]: ends another client's wait for a key.

use crate::command::{Call, CommandError, write_null};
use crate::net::Output;
use crate::resp::Reply;

const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";

pub fn unblock(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let is_error = match args.len() {
        3 => false,
        4 if args.is(3, "timeout") => false,
        4 if args.is(3, "error") => true,
        _ => return Err(CommandError::new("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
    };
    let id = args.integer(2)?;
    let waiter = u64::try_from(id).ok().and_then(|id| call.server.waiting.of_client(id));
    let ended = waiter.is_some_and(|waiter| {
        let mut output = Output::default();
        let mut reply = Reply::new(&mut output, waiter.protocol);
        if is_error {
            reply.error(UNBLOCKED);
        } else {
            write_null(&mut reply, &waiter);
        }
        call.local.end_wait(call.server, &waiter, &output.bytes)
    });
    call.reply.integer(i64::from(ended));
    Ok(())
}
''')
