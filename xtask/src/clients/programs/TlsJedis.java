// Jedis over TLS with a client certificate, with users.
import java.io.*;
import java.security.*;
import java.security.cert.*;
import java.util.*;
import java.util.concurrent.*;
import javax.net.ssl.*;
import redis.clients.jedis.*;
import redis.clients.jedis.exceptions.*;

public class TlsJedis {
    static void equal(Object got, Object wanted) {
        if (!String.valueOf(got).equals(String.valueOf(wanted))) throw new AssertionError("got " + got + ", wanted " + wanted);
    }

    static void fails(Class<?> wanted, Runnable call) {
        try {
            call.run();
        } catch (Exception error) {
            if (wanted.isInstance(error)) return;
            throw new AssertionError("wanted " + wanted, error);
        }
        throw new AssertionError("wanted " + wanted);
    }

    static SSLSocketFactory factory(boolean hasCertificate) throws Exception {
        String files = System.getenv("TLS");
        KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null, null);
        try (InputStream in = new FileInputStream(files + "/ca.crt")) {
            trusted.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(in));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        KeyManager[] keys = null;
        if (hasCertificate) {
            KeyStore own = KeyStore.getInstance("PKCS12");
            try (InputStream in = new FileInputStream(files + "/ada.p12")) {
                own.load(in, "secret".toCharArray());
            }
            KeyManagerFactory managers = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
            managers.init(own, "secret".toCharArray());
            keys = managers.getKeyManagers();
        }
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys, trust.getTrustManagers(), null);
        return context.getSocketFactory();
    }

    static Jedis connect(boolean hasCertificate, String user, String password) {
        try {
            DefaultJedisClientConfig.Builder config = DefaultJedisClientConfig.builder().ssl(true).sslSocketFactory(factory(hasCertificate));
            if (user != null) config.user(user).password(password);
            return new Jedis(new HostAndPort("localhost", Integer.parseInt(System.getenv("TLS_PORT"))), config.build());
        } catch (JedisException error) {
            throw error;
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    public static void main(String[] arguments) throws Exception {
        try (Jedis r = connect(true, null, null)) {
            r.flushAll();
            if (System.getenv("BY_CERTIFICATE") != null) equal(r.aclWhoAmI(), "ada");
            String large = "x".repeat(3 << 20);
            r.set("large", large);
            equal(r.get("large").length(), large.length());
            Pipeline pipe = r.pipelined();
            for (int at = 0; at < 5000; at++) pipe.set("key:" + at, "" + at);
            equal(pipe.syncAndReturnAll().stream().filter("OK"::equals).count(), 5000);
            BlockingQueue<String> got = new LinkedBlockingQueue<>();
            JedisPubSub listener = new JedisPubSub() {
                public void onSubscribe(String channel, int count) { got.add("listens"); }
                public void onMessage(String channel, String text) { got.add(text); }
            };
            Thread thread = new Thread(() -> {
                try (Jedis own = connect(true, null, null)) { own.subscribe(listener, "c"); }
            });
            thread.start();
            equal(got.poll(10, TimeUnit.SECONDS), "listens");
            r.publish("c", "hello");
            equal(got.poll(10, TimeUnit.SECONDS), "hello");
            listener.unsubscribe();
            thread.join(5000);
            fails(JedisException.class, () -> { try (Jedis bare = connect(false, null, null)) { bare.ping(); } });
            equal(r.aclSetUser("bob", "on", ">pw", "~b:*", "+@read", "+acl|whoami"), "OK");
            try (Jedis bob = connect(true, "bob", "pw")) {
                equal(bob.aclWhoAmI(), "bob");
                equal(bob.get("b:1"), null);
                fails(JedisAccessControlException.class, () -> bob.get("a"));
                fails(JedisAccessControlException.class, () -> bob.set("b:1", "x"));
            }
            fails(JedisAccessControlException.class, () -> connect(true, "bob", "wrong").close());
            equal(r.aclGetUser("bob").getKeys(), "~b:*");
            equal(r.aclDelUser("bob"), 1);
        }
    }
}
