// ioredis over TLS with a client certificate, with users: as its own tests of logins, with a server in place of a mock.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import Redis from "ioredis";

const file = (name) => readFileSync(`${process.env.TLS}/${name}`);
const tls = { ca: file("ca.crt"), cert: file("ada.crt"), key: file("ada.key"), servername: "localhost" };
const at = { host: "127.0.0.1", port: Number(process.env.TLS_PORT), tls };
const r = new Redis(at);
await r.flushall();
if (process.env.BY_CERTIFICATE) assert.equal(await r.acl("WHOAMI"), "ada");
const large = "x".repeat(3 << 20);
await r.set("large", large);
assert.equal(await r.get("large"), large);
const pipe = r.pipeline();
for (let i = 0; i < 5000; i++) pipe.set(`key:${i}`, i);
assert.equal((await pipe.exec()).filter(([error, value]) => !error && value === "OK").length, 5000);
const listener = new Redis(at);
const message = new Promise((go) => listener.on("message", (channel, text) => go([channel, text])));
await listener.subscribe("c");
await r.publish("c", "one");
assert.deepEqual(await message, ["c", "one"]);

/** The first error of a client that does not try again. */
async function failure(options) {
    const client = new Redis({ ...options, retryStrategy: null, lazyConnect: true, maxRetriesPerRequest: 0, enableOfflineQueue: true });
    const errors = [];
    client.on("error", (error) => errors.push(error));
    await client.connect().then(() => client.get("b:1")).catch((error) => errors.push(error));
    client.disconnect();
    assert(errors.length > 0, "no error");
    return errors.map((error) => error.message).join("; ");
}
await failure({ ...at, tls: { ...tls, cert: undefined, key: undefined } });
await failure({ ...at, tls: { ...tls, ca: file("ada.crt") } });

await r.acl("SETUSER", "bob", "on", ">pw", "~b:*", "+@read", "+acl|whoami", "+info", "+hello", "+client");
await r.acl("SETUSER", "pass", "on", ">only", "~*", "+@all");
const bob = new Redis({ ...at, username: "bob", password: "pw" });
assert.equal(await bob.acl("WHOAMI"), "bob");
assert.equal(await bob.get("b:1"), null);
await assert.rejects(bob.get("a"), /NOPERM/);
await assert.rejects(bob.set("b:1", "x"), /NOPERM/);
// A login is sent again after the connection was lost.
bob.disconnect(true);
assert.equal(await bob.acl("WHOAMI"), "bob");
assert.match(await failure({ ...at, username: "bob", password: "wrong" }), /WRONGPASS/);
assert.match(await failure({ ...at, username: "nobody", password: "pw" }), /WRONGPASS/);
const byAddress = new Redis(`rediss://pass:only@localhost:${process.env.TLS_PORT}/`, { tls });
assert.equal(await byAddress.acl("WHOAMI"), "pass");
// A password that is not needed is a warning, no error.
const warn = console.warn;
console.warn = () => {};
const needless = new Redis({ ...at, password: "needless" });
assert.equal(await needless.ping(), "PONG");
console.warn = warn;
await r.acl("SETUSER", "default", ">needed", "resetpass");
await r.acl("SETUSER", "default", ">needed");
assert.match(await failure({ ...at, tls: { ...tls, cert: file("other.crt"), key: file("other.key") } }), /NOAUTH/);
const other = new Redis({ ...at, password: "needed", tls: { ...tls, cert: file("other.crt"), key: file("other.key") } });
assert.equal(await other.acl("WHOAMI"), "default");
for (const client of [r, listener, bob, byAddress, needless, other]) client.disconnect();
