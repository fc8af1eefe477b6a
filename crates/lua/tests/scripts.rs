//! Scripts through the door of the crate, against a host whose command `reply` answers what it is given.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use duramen_lua::{Called, Function, Host, Interpreter, Interrupt, Options, Replies, RunError};
use duramen_resp::Span;
use std::fmt::Write;

/// Answers commands without a server.
#[derive(Default)]
struct Echo {
    reply: Vec<u8>,
    called: Vec<Vec<String>>,
    resp3: bool,
    log: Vec<(u8, String)>,
    interrupts: u32,
    interrupt: Option<Interrupt>,
}

fn words(buffer: &[u8], spans: &[Span]) -> Vec<String> {
    spans.iter().map(|span| String::from_utf8_lossy(&buffer[span.start..span.end]).into_owned()).collect()
}

impl Host for Echo {
    fn call(&mut self, buffer: &[u8], spans: &[Span]) -> Called {
        let words = words(buffer, spans);
        self.called.push(words.clone());
        match words[0].as_str() {
            "reply" => self.reply = buffer[spans[1].start..spans[1].end].to_vec(),
            "resp" => self.reply = if self.resp3 { b":3\r\n".to_vec() } else { b":2\r\n".to_vec() },
            "abort" => return Called::Aborted,
            "panic" => panic!("on purpose"),
            _ => {
                self.reply = b"Unknown Redis command called from script".to_vec();
                return Called::Refused;
            }
        }
        Called::Replied
    }

    fn reply(&self) -> &[u8] {
        &self.reply
    }

    fn set_resp3(&mut self, resp3: bool) {
        self.resp3 = resp3;
    }

    fn may_call(&mut self, buffer: &[u8], spans: &[Span]) -> Option<bool> {
        match words(buffer, spans)[0].as_str() {
            "reply" => Some(true),
            "panic" => Some(false),
            _ => None,
        }
    }

    fn log(&mut self, level: u8, text: &[u8]) {
        self.log.push((level, String::from_utf8_lossy(text).into_owned()));
    }

    fn interrupt(&mut self) -> Interrupt {
        self.interrupts += 1;
        self.interrupt.unwrap_or(Interrupt::Continue)
    }
}

/// Writes a reply as text.
#[derive(Default)]
struct Text(String);

impl Replies for Text {
    fn bulk(&mut self, bytes: &[u8]) {
        write!(self.0, "\"{}\" ", String::from_utf8_lossy(bytes)).unwrap();
    }
    fn null(&mut self) {
        self.0.push_str("null ");
    }
    fn boolean(&mut self, value: bool) {
        write!(self.0, "{value} ").unwrap();
    }
    fn integer(&mut self, value: i64) {
        write!(self.0, "{value} ").unwrap();
    }
    fn double(&mut self, value: f64) {
        write!(self.0, ",{value} ").unwrap();
    }
    fn big_number(&mut self, digits: &[u8]) {
        write!(self.0, "({} ", String::from_utf8_lossy(digits)).unwrap();
    }
    fn verbatim(&mut self, format: &[u8], bytes: &[u8]) {
        write!(self.0, "={}:{} ", String::from_utf8_lossy(format), String::from_utf8_lossy(bytes)).unwrap();
    }
    fn status(&mut self, text: &[u8]) {
        write!(self.0, "+{} ", String::from_utf8_lossy(text)).unwrap();
    }
    fn error(&mut self, text: &[u8], is_counted: bool) {
        let sign = if is_counted { "--" } else { "-" };
        write!(self.0, "{sign}{} ", String::from_utf8_lossy(text)).unwrap();
    }
    fn array(&mut self, count: usize) {
        write!(self.0, "*{count} ").unwrap();
    }
    fn map(&mut self, count: usize) {
        write!(self.0, "%{count} ").unwrap();
    }
    fn set(&mut self, count: usize) {
        write!(self.0, "~{count} ").unwrap();
    }
}

const OPTIONS: Options =
    Options { bytes_max: 64 << 20, version: "7.2.4", version_number: 0x0007_0204, is_for_functions: false };

fn interpreter() -> Interpreter {
    Interpreter::new(OPTIONS).unwrap()
}

fn run_on(lua: &mut Interpreter, host: &mut Echo, script: &str, keys: &[&str], args: &[&str]) -> String {
    let function = match lua.compile(script.as_bytes(), c"@user_script") {
        Ok(function) => function,
        Err(error) => return format!("compile: {}", String::from_utf8_lossy(&error)),
    };
    let mut text = Text::default();
    let mut keys = keys.iter().map(|key| key.as_bytes());
    let mut args = args.iter().map(|arg| arg.as_bytes());
    let result = lua.run(&function, false, host, &mut text, &mut keys, &mut args, 7);
    lua.forget(function);
    match result {
        Ok(()) => text.0.trim_end().to_owned(),
        Err(RunError::Raised { text, place, is_counted }) => {
            let place = place.map_or(String::new(), |(source, line)| {
                format!(" on {}:{}", String::from_utf8_lossy(&source), String::from_utf8_lossy(&line))
            });
            let counted = if is_counted { " (counted)" } else { "" };
            format!("raised: {}{place}{counted}", String::from_utf8_lossy(&text))
        }
        Err(RunError::Failed(text)) => format!("failed: {}", String::from_utf8_lossy(&text)),
        Err(RunError::Aborted) => "aborted".to_owned(),
    }
}

fn run(script: &str) -> String {
    run_on(&mut interpreter(), &mut Echo::default(), script, &[], &[])
}

#[test]
fn values_become_replies() {
    for (script, reply) in [
        ("return 1", "1"),
        ("return 3.99", "3"),
        ("return -3.99", "-3"),
        ("return 1/0", "-9223372036854775808"),
        ("return 'a\\0b'", "\"a\0b\""),
        ("return true", "1"),
        ("return false", "null"),
        ("return nil", "null"),
        ("", "null"),
        ("return {1, 'x', nil, 4}", "*2 1 \"x\""),
        ("return {1, {2, {3}}, false}", "*3 1 *2 2 *1 3 null"),
        ("return {ok='fine'}", "+fine"),
        ("return {err='MY error'}", "-MY error"),
        ("return {double=3.25}", ",3.25"),
        ("return {big_number='123456789012345678901'}", "(123456789012345678901"),
        ("return {verbatim_string={format='txt',string='hi'}}", "=txt:hi"),
        ("return {map={a=1}}", "%1 \"a\" 1"),
        ("return {set={a=true}}", "~1 \"a\""),
        ("redis.setresp(3); return {true, false}", "*2 true false"),
        ("return redis.status_reply('OK')", "+OK"),
        ("return redis.error_reply('ERR x')", "-ERR x"),
        ("return redis.error_reply('-WHY x')", "-WHY x"),
        ("return redis.error_reply('plain')", "-ERR plain"),
        ("return redis.error_reply('')", "-ERR"),
        ("return redis.error_reply('').err", "\"ERR \""),
        ("return redis.error_reply(1)", "-ERR wrong number or type of arguments"),
        ("return function() end", "null"),
        ("return {KEYS, ARGV}", "*2 *0 *0"),
    ] {
        assert_eq!(run(script), reply, "{script}");
    }
}

#[test]
fn replies_become_values() {
    for (reply, shown) in [
        (":12\\r\\n", "12"),
        ("+OK\\r\\n", "+OK"),
        ("$3\\r\\nabc\\r\\n", "\"abc\""),
        ("$-1\\r\\n", "null"),
        ("*-1\\r\\n", "null"),
        ("*3\\r\\n:1\\r\\n$-1\\r\\n+x\\r\\n", "*3 1 null +x"),
        ("_\\r\\n", "null"),
        ("#t\\r\\n", "1"),
        (",1.5\\r\\n", ",1.5"),
        (",inf\\r\\n", ",inf"),
        ("(12345678901234567890\\r\\n", "(12345678901234567890"),
        ("=6\\r\\ntxt:hi\\r\\n", "=txt:hi"),
        ("%1\\r\\n+a\\r\\n:1\\r\\n", "%1 +a 1"),
        ("~1\\r\\n$1\\r\\na\\r\\n", "~1 \"a\""),
        ("|1\\r\\n+ttl\\r\\n:3\\r\\n:7\\r\\n", "7"),
    ] {
        let script = format!("return redis.call('reply', '{reply}')");
        assert_eq!(run(&script), shown, "{reply}");
    }
    assert_eq!(run("return type(redis.call('reply', '_\\r\\n'))"), "\"nil\"");
    assert_eq!(run("return type(redis.call('reply', '$-1\\r\\n'))"), "\"boolean\"");
    assert_eq!(run("return redis.call('reply', '%1\\r\\n+a\\r\\n:1\\r\\n').map.a"), "null");
    // Bytes that are no reply take no memory, and do not end the process.
    assert_eq!(run("return redis.call('reply', '*999999999\\r\\n:1\\r\\n')"), "null");
}

#[test]
fn errors_of_commands_are_raised_or_returned() {
    let raised = run("\nreturn redis.call('reply', '-WRONGTYPE no\\r\\n')");
    assert_eq!(raised, "raised: WRONGTYPE no on @user_script:2 (counted)");
    assert_eq!(run("return redis.pcall('reply', '-WRONGTYPE no\\r\\n')"), "--WRONGTYPE no");
    assert_eq!(run("return redis.pcall('reply', '-WRONGTYPE no\\r\\n').err"), "\"WRONGTYPE no\"");
    assert_eq!(
        run("return redis.call('nosuch')"),
        "raised: ERR Unknown Redis command called from script on @user_script:1 (counted)"
    );
    // As in Redis, `pcall` gives the text alone.
    assert_eq!(run("local ok, e = pcall(redis.call, 'nosuch'); return {ok, e}"), {
        "*2 null \"ERR Unknown Redis command called from script\""
    });
    assert_eq!(
        run("return redis.call()"),
        "raised: ERR Please specify at least one argument for this redis lib call on @user_script:1"
    );
    assert_eq!(
        run("return redis.call('reply', {})"),
        "raised: ERR Lua redis lib command arguments must be strings or integers on @user_script:1"
    );
}

#[test]
fn errors_of_lua_say_where() {
    for (script, error) in [
        (
            "\n\nfoo.bar()",
            "raised: ERR user_script:3: Script attempted to access nonexistent global variable 'foo' on @user_script:3",
        ),
        ("error('mine')", "raised: ERR user_script:1: mine on @user_script:1"),
        ("error({err='MINE x'})", "raised: MINE x on @user_script:1"),
        ("error()", "raised: ERR nil on @user_script:1"),
        ("return 1 +", "compile: user_script:1: unexpected symbol near '<eof>'"),
        (
            "string.rep()",
            "raised: ERR user_script:1: bad argument #1 to 'rep' (string expected, got no value) on @user_script:1",
        ),
        (
            "table.insert(nil, 1)",
            "raised: ERR user_script:1: bad argument #1 to 'insert' (table expected, got nil) on @user_script:1",
        ),
        (
            "local t = nil; return t.x",
            "raised: ERR user_script:1: attempt to index local 't' (a nil value) on @user_script:1",
        ),
    ] {
        assert_eq!(run(script), error, "{script}");
    }
}

#[test]
fn globals_and_libraries_are_read_only() {
    const MESSAGE: &str = "Attempt to modify a readonly table";
    for script in [
        "a = 10",
        "redis = 1",
        "_G = {}",
        "redis.call = function() return 1 end",
        "cjson.encode = 1",
        "string.format = 1",
        "bit.lshift = 1",
        "rawset(_G, 'a', 1)",
        "rawset(redis, 'call', 1)",
        "setmetatable(_G, {})",
        "setmetatable(redis, {})",
        "getmetatable(_G).__index = {}",
        "table.insert(_G, 1)",
        "getmetatable('').__index = {}",
        "getmetatable('').x = 1",
        "getmetatable('').__index.upper = 1",
    ] {
        let reply = run(script);
        assert!(reply.contains(MESSAGE), "{script}: {reply}");
    }
    // What enumerates sees what is behind, and cannot reach it.
    assert_eq!(
        run("local n = 0; for k, v in pairs(redis) do if k == 'call' then n = n + 1 end end; return n"),
        "1"
    );
    assert!(run("local f, t = pairs(redis); t.call = 1").contains(MESSAGE));
    assert_eq!(run("return type(next(_G))"), "\"string\"");
    assert_eq!(run("return type(rawget(redis, 'call'))"), "\"function\"");
    assert_eq!(run("return type(_G._G.redis.call)"), "\"function\"");
    assert_eq!(
        run("return {tostring(getmetatable(redis)), type(getmetatable(_G)), type(getmetatable(''))}"),
        { "*3 \"nil\" \"table\" \"table\"" }
    );
}

#[test]
fn nothing_stays_for_the_next_script() {
    let (mut lua, mut host) = (interpreter(), Echo::default());
    for (first, second, reply) in [
        ("collectgarbage('stop')", "return collectgarbage('count') > 0", "1"),
        ("pcall(function() a = 1 end)", "return rawget(_G, 'a')", "null"),
        ("redis.setresp(3)", "return false", "null"),
    ] {
        run_on(&mut lua, &mut host, first, &[], &[]);
        assert_eq!(run_on(&mut lua, &mut host, second, &[], &[]), reply, "{first}");
    }
    assert_eq!(run_on(&mut lua, &mut host, "return {KEYS[1], ARGV[1]}", &["k"], &["a"]), "*2 \"k\" \"a\"");
    assert_eq!(run_on(&mut lua, &mut host, "return {#KEYS, #ARGV}", &[], &[]), "*2 0 0");
}

#[test]
fn what_is_dangerous_is_not_there() {
    for name in
        ["print", "dofile", "loadfile", "require", "module", "io", "debug", "package", "setfenv", "newproxy"]
    {
        let reply = run(&format!("return type({name})"));
        assert!(reply.contains("nonexistent global variable"), "{name}: {reply}");
    }
    assert_eq!(
        run("local n = 0; for k in pairs(os) do n = n + 1 end; return {n, type(os.clock())}"),
        "*2 1 \"number\""
    );
    // Compiled code is read as text.
    let reply = run("return {loadstring(string.char(27) .. 'Lua')}");
    assert_eq!(reply, "*0");
    let reply = run("local f, e = loadstring(string.char(27) .. 'Lua', '=x'); return e");
    assert_eq!(reply, "\"x:1: unexpected symbol near 'char(27)'\"");
    assert!(run("return string.dump(function() end)").starts_with('"'));
    let reply = run(
        "local d = string.dump(function() return 1 end); local f, e = load(function() local x = d; d = nil; return x end); return {type(f), e}",
    );
    assert!(reply.contains("source text"), "{reply}");
    assert_eq!(run("return loadstring('return 1 + 1')()"), "2");
    assert_eq!(
        run("local p = {'return ', '3'}; local i = 0; return load(function() i = i + 1; return p[i] end)()"),
        "3"
    );
}

#[test]
fn libraries_are_redis_s() {
    for (script, reply) in [
        ("return cjson.encode({1, 2, {a='b'}})", "\"[1,2,{\"a\":\"b\"}]\""),
        ("return cjson.encode({})", "\"{}\""),
        ("return cjson.decode('{\"a\":[1,2.5,null]}').a", "*3 1 2 null"),
        ("return cjson.encode(cjson.null)", "\"null\""),
        ("return cjson.encode(1.0)", "\"1\""),
        ("return cjson.encode(0.1)", "\"0.1\""),
        ("local a = cmsgpack.pack({1,'x'}); return {#a, cmsgpack.unpack(a)}", "*2 4 *2 1 \"x\""),
        ("return {struct.unpack('>I2', struct.pack('>I2', 258))}", "*2 258 3"),
        ("return struct.size('!4bi')", "8"),
        ("return {bit.band(255, 15), bit.tohex(255, 4), bit.lshift(1, 31)}", "*3 15 \"00ff\" -2147483648"),
        ("return bit.tohex(10, -2147483648)", "\"0000000A\""),
        ("return redis.sha1hex('')", "\"da39a3ee5e6b4b0d3255bfef95601890afd80709\""),
        ("return redis.sha1hex(1)", "\"356a192b7913b04c54574d18c28d46e6395428ab\""),
        ("return redis.REDIS_VERSION", "\"7.2.4\""),
        ("return {redis.LOG_DEBUG, redis.LOG_WARNING, redis.REPL_ALL}", "*3 0 3 3"),
        ("return redis.breakpoint()", "null"),
        ("return redis.replicate_commands()", "1"),
    ] {
        assert_eq!(run(script), reply, "{script}");
    }
}

#[test]
fn numbers_reach_commands_exactly() {
    let mut host = Echo::default();
    let script = "redis.pcall('x', 1, -7, 3.5, 1e15, 1e17, 0.1, 2^53, 1/0, '5')";
    run_on(&mut interpreter(), &mut host, script, &[], &[]);
    let expected = [
        "x",
        "1",
        "-7",
        "3.5",
        "1000000000000000",
        "1e+17",
        "0.10000000000000001",
        "9007199254740992",
        "inf",
        "5",
    ];
    assert_eq!(host.called, [expected.map(str::to_owned)]);
}

#[test]
fn random_numbers_repeat_with_their_seed() {
    let script = "return {tostring(math.random()), math.random(100), math.random(5, 6)}";
    assert_eq!(run(script), run(script));
    // The sequence that Redis gives for this seed.
    let script =
        "math.randomseed(1); local t = {}; for i = 1, 3 do t[i] = math.random(1000000) end; return t";
    assert_eq!(run(script), "*3 41631 454493 834818");
    assert!(run("math.random(0)").contains("bad argument #1 to 'random' (interval is empty)"));
}

#[test]
fn no_pcall_survives_the_end() {
    for way in [
        "pcall(redis.call, 'abort')",
        "pcall(function() redis.call('abort') end)",
        "xpcall(function() redis.call('abort') end, function() return 1 end)",
        "coroutine.resume(coroutine.create(function() pcall(redis.call, 'abort') end))",
        "coroutine.wrap(function() coroutine.wrap(function() pcall(redis.call, 'abort') end)() end)()",
        "redis.pcall('abort')",
    ] {
        let mut host = Echo::default();
        let script = format!("while true do {way}; redis.call('reply', ':1\\r\\n') end");
        assert_eq!(run_on(&mut interpreter(), &mut host, &script, &[], &[]), "aborted", "{way}");
        assert_eq!(host.called.len(), 1, "{way}");
    }
}

#[test]
fn a_script_that_never_ends_is_killed() {
    let (mut lua, mut host) = (interpreter(), Echo::default());
    host.interrupt = Some(Interrupt::Kill);
    for script in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "local function f() while true do end end; while true do coroutine.resume(coroutine.create(f)) end",
    ] {
        let reply = run_on(&mut lua, &mut host, script, &[], &[]);
        assert!(
            reply.starts_with("raised: ERR Script killed by user with SCRIPT KILL..."),
            "{script}: {reply}"
        );
    }
    host.interrupt = Some(Interrupt::Abort);
    assert_eq!(run_on(&mut lua, &mut host, "while true do end", &[], &[]), "aborted");
    host.interrupt = None;
    assert_eq!(run_on(&mut lua, &mut host, "return 1", &[], &[]), "1");
}

#[test]
fn a_script_without_memory_fails_and_the_next_one_has_it_again() {
    let (mut lua, mut host) = (interpreter(), Echo::default());
    let before = lua.bytes();
    for script in [
        "local t = {} while true do t[#t + 1] = {#t} end",
        "return string.rep('x', 1000000000)",
        "local s = 'x' while true do s = s .. s end",
    ] {
        let reply = run_on(&mut lua, &mut host, script, &[], &[]);
        assert_eq!(reply, "failed: not enough memory", "{script}");
    }
    // Lua halves the table of strings and the buffer for joining them in each cycle.
    assert!(lua.bytes() < before + (16 << 20), "{} bytes", lua.bytes());
    assert_eq!(run_on(&mut lua, &mut host, "return #string.rep('x', 1000000)", &[], &[]), "1000000");
}

#[test]
fn a_panic_of_the_host_is_passed_on() {
    let (mut lua, mut host) = (interpreter(), Echo::default());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        run_on(&mut lua, &mut host, "pcall(redis.call, 'panic')", &[], &[])
    }));
    assert!(panicked.is_err());
    assert_eq!(run_on(&mut lua, &mut host, "return 1", &[], &[]), "1");
}

#[test]
fn a_reply_that_contains_itself_ends() {
    let reply = run("local a = {}; a[1] = a; return a");
    assert!(reply.ends_with("*1 -ERR reached lua stack limit"), "{}", &reply[reply.len() - 50..]);
}

#[test]
fn thousands_of_scripts_take_bounded_memory() {
    let (mut lua, mut host) = (interpreter(), Echo::default());
    run_on(&mut lua, &mut host, "return 0", &[], &[]);
    let before = lua.bytes();
    for number in 0..10_000 {
        let reply = run_on(&mut lua, &mut host, &format!("return {number}"), &[], &[]);
        assert_eq!(reply, number.to_string());
    }
    assert!(lua.bytes() < before + (2 << 20), "{} bytes more", lua.bytes() - before);
}

#[test]
fn log_and_resp_reach_the_host() {
    let mut host = Echo::default();
    let script = "redis.log(redis.LOG_WARNING, 'a', 1, {}, 'b'); redis.setresp(3); return redis.call('resp')";
    assert_eq!(run_on(&mut interpreter(), &mut host, script, &[], &[]), "3");
    assert_eq!(host.log, [(3, "a 1 b".to_owned())]);
    assert_eq!(run("return {redis.acl_check_cmd('reply'), redis.acl_check_cmd('panic')}"), "*2 1 null");
    assert!(run("redis.acl_check_cmd('x')").contains("Invalid command passed to redis.acl_check_cmd()"));
}

fn functions() -> Interpreter {
    Interpreter::new(Options { is_for_functions: true, ..OPTIONS }).unwrap()
}

fn call(
    lua: &mut Interpreter,
    function: &Function,
    keys: &[&str],
    args: &[&str],
) -> Result<String, RunError> {
    let mut text = Text::default();
    let mut keys = keys.iter().map(|key| key.as_bytes());
    let mut args = args.iter().map(|arg| arg.as_bytes());
    lua.run(function, true, &mut Echo::default(), &mut text, &mut keys, &mut args, 7)?;
    Ok(text.0.trim_end().to_owned())
}

const TIME: std::time::Duration = std::time::Duration::from_millis(500);

#[test]
fn a_library_registers_functions_that_run() {
    let mut lua = functions();
    let code = b"local function twice(x) return 2 * x end
        redis.register_function('f', function(keys, args) return {keys[1], twice(tonumber(args[1]))} end)
        redis.register_function{function_name='g', callback=function() return redis.call('resp') end,
            description='gives', flags={'no-writes', 'allow-oom'}}";
    let loaded = lua.load(code, TIME).unwrap();
    assert_eq!(loaded[0].0.name, b"f");
    assert_eq!(loaded[1].0.description.as_deref(), Some(&b"gives"[..]));
    assert_eq!(loaded[1].0.flags.names().collect::<Vec<_>>(), ["no-writes", "allow-oom"]);
    assert_eq!(call(&mut lua, &loaded[0].1, &["k"], &["21"]).unwrap(), "*2 \"k\" 42");
    assert_eq!(call(&mut lua, &loaded[1].1, &[], &[]).unwrap(), "2");
}

#[test]
fn a_library_that_fails_registers_nothing() {
    let mut lua = functions();
    for (code, error) in [
        ("foo(", "Error compiling function: user_function:1: unexpected symbol near '<eof>'"),
        (
            "redis.call('x')",
            "Error registering functions: @user_function: 1: Script attempted to access nonexistent global variable 'call'",
        ),
        (
            "redis.register_function('a')",
            "calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).",
        ),
        (
            "redis.register_function('a b', function() end)",
            "can only contain letters, numbers, or underscores(_)",
        ),
        (
            "redis.register_function('a', function() end) redis.register_function('a', function() end)",
            "Function already exists in the library",
        ),
        (
            "redis.register_function{function_name='a'}",
            "redis.register_function must get a callback argument",
        ),
        (
            "redis.register_function{function_name='a', callback=function() end, flags={'x'}}",
            "unknown flag given",
        ),
        (
            "redis.register_function{function_name='a', callback=function() end, x=1}",
            "unknown argument given to redis.register_function",
        ),
        ("math.random()", "attempted to access nonexistent global variable 'math'"),
        ("a = 1", "Attempt to modify a readonly table"),
        ("while true do end", "FUNCTION LOAD timeout"),
    ] {
        let found = lua.load(code.as_bytes(), TIME / 5).unwrap_err();
        let found = String::from_utf8(found).unwrap();
        let wanted = error.rsplit(": ").next().unwrap();
        assert!(found.contains(wanted), "{code}: {found}");
    }
}

/// Runs a script on arguments of any bytes.
fn run_bytes(script: &str, args: &[&[u8]]) -> Result<(), RunError> {
    let mut lua = interpreter();
    let function = lua.compile(script.as_bytes(), c"@user_script").unwrap();
    let (mut none, mut args) = (std::iter::empty::<&[u8]>(), args.iter().copied());
    lua.run(&function, false, &mut Echo::default(), &mut Text::default(), &mut none, &mut args, 0)
}

proptest::proptest! {
    #[test]
    fn any_bytes_as_a_reply_become_a_value(bytes: Vec<u8>, sign in 0usize..12) {
        let reply = [&b"*%~|$=:+-_#,"[sign..=sign], &bytes].concat();
        let _ = run_bytes("return redis.pcall('reply', ARGV[1])", &[&reply]);
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes: Vec<u8>, format in "[<>!=bBhHlLTiIcsfdx0-9 ]{0,12}") {
        for script in ["return cmsgpack.unpack(ARGV[1])", "return cjson.decode(ARGV[1])", "return loadstring(ARGV[1])"] {
            let _ = run_bytes(script, &[&bytes]);
        }
        let _ = run_bytes("return {struct.unpack(ARGV[2], ARGV[1])}", &[&bytes, format.as_bytes()]);
        let _ = run_bytes("return struct.pack(ARGV[2], 1, 2, 'x', 3)", &[&bytes, format.as_bytes()]);
    }

    #[test]
    fn any_first_line_is_read_or_refused(line in "#!(lua)?[ a-z=,\"'-]{0,40}\n?") {
        let _ = duramen_lua::script_header(line.as_bytes());
        let _ = duramen_lua::library_header(line.as_bytes());
    }
}

#[test]
fn what_scripts_leave_behind_is_collected_while_small_ones_run() {
    let mut lua = interpreter();
    let mut compile = |code: &str| lua.compile(code.as_bytes(), c"@user_script").unwrap();
    let small = compile("return {ARGV[1] .. 'x'}");
    let large = compile("local t = {} for i = 1, 100000 do t[i] = 'text ' .. i end return #t");
    let mut run = |function: &Function, times| {
        for _ in 0..times {
            let (mut none, mut args) = (std::iter::empty(), [&b"an argument"[..]].into_iter());
            let (mut host, mut text) = (Echo::default(), Text::default());
            lua.run(function, false, &mut host, &mut text, &mut none, &mut args, 7).unwrap();
        }
        lua.bytes()
    };
    let at_rest = run(&small, 1);
    assert!((0..20).all(|_| run(&small, 1000) < 4 * at_rest), "more than four times {at_rest} bytes");
    assert!(run(&large, 1) > 4 << 20);
    let left = run(&small, 20_000);
    assert!(left < 2 << 20, "{left} bytes");
}
