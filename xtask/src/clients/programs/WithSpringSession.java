// Spring Session over Lettuce: sessions, the index by user, and events of ending sessions, which come
// from the server's notifications.
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.springframework.context.ApplicationEvent;
import org.springframework.data.redis.connection.RedisConnection;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.RedisTemplate;
import org.springframework.data.redis.listener.*;
import org.springframework.data.redis.serializer.RedisSerializer;
import org.springframework.session.*;
import org.springframework.session.data.redis.RedisIndexedSessionRepository;
import org.springframework.session.data.redis.config.ConfigureNotifyKeyspaceEventsAction;
import org.springframework.session.events.*;

public class WithSpringSession {
    static void equal(Object got, Object wanted) {
        if (!String.valueOf(got).equals(String.valueOf(wanted))) throw new AssertionError("got " + got + ", wanted " + wanted);
    }

    static final BlockingQueue<AbstractSessionEvent> events = new LinkedBlockingQueue<>();

    static void event(Class<?> kind, String id) throws InterruptedException {
        AbstractSessionEvent event = events.poll(20, TimeUnit.SECONDS);
        if (event == null) throw new AssertionError("no event, wanted " + kind.getSimpleName());
        equal(event.getClass().getSimpleName() + " " + event.getSessionId(), kind.getSimpleName() + " " + id);
    }

    static <S extends Session> void sessions(FindByIndexNameSessionRepository<S> sessions) throws InterruptedException {
        String user = FindByIndexNameSessionRepository.PRINCIPAL_NAME_INDEX_NAME;
        S one = sessions.createSession();
        one.setAttribute("cart", new ArrayList<>(List.of("apple", "pear")));
        one.setAttribute(user, "ann");
        sessions.save(one);
        event(SessionCreatedEvent.class, one.getId());
        S read = sessions.findById(one.getId());
        equal(read.getAttribute("cart"), "[apple, pear]");
        read.setAttribute("cart", new ArrayList<>(List.of("plum")));
        read.setLastAccessedTime(java.time.Instant.now());
        sessions.save(read);
        equal(sessions.findById(one.getId()).getAttribute("cart"), "[plum]");
        equal(sessions.findByPrincipalName("ann").keySet(), Set.of(one.getId()));
        String before = read.getId();
        read.changeSessionId();
        sessions.save(read);
        equal(sessions.findById(before), null);
        equal(sessions.findByPrincipalName("ann").keySet(), Set.of(read.getId()));
        sessions.deleteById(read.getId());
        event(SessionDeletedEvent.class, read.getId());
        equal(sessions.findById(read.getId()), null);
        equal(sessions.findByPrincipalName("ann").keySet(), Set.of());
        S brief = sessions.createSession();
        brief.setMaxInactiveInterval(Duration.ofSeconds(1));
        brief.setAttribute(user, "bob");
        sessions.save(brief);
        event(SessionCreatedEvent.class, brief.getId());
        // No client reads the session: the server alone finds and reports that it has expired.
        event(SessionExpiredEvent.class, brief.getId());
        equal(sessions.findByPrincipalName("bob").keySet(), Set.of());
    }

    public static void main(String[] arguments) throws Exception {
        var connections = new LettuceConnectionFactory("127.0.0.1", Integer.parseInt(System.getenv("PORT")));
        connections.afterPropertiesSet();
        connections.start();
        try (RedisConnection connection = connections.getConnection()) {
            connection.serverCommands().flushAll();
            new ConfigureNotifyKeyspaceEventsAction().configure(connection);
            String classes = connection.serverCommands().getConfig("notify-keyspace-events").getProperty("notify-keyspace-events");
            if (!classes.contains("E") || !classes.contains("x") && !classes.contains("A")) throw new AssertionError("tells " + classes);
        }
        RedisTemplate<String, Object> template = new RedisTemplate<>();
        template.setKeySerializer(RedisSerializer.string());
        template.setHashKeySerializer(RedisSerializer.string());
        template.setConnectionFactory(connections);
        template.afterPropertiesSet();
        var sessions = new RedisIndexedSessionRepository(template);
        sessions.setApplicationEventPublisher(event -> events.add((AbstractSessionEvent) event));
        sessions.afterPropertiesSet();
        var listeners = new RedisMessageListenerContainer();
        listeners.setConnectionFactory(connections);
        listeners.addMessageListener(sessions, List.of(new ChannelTopic(sessions.getSessionDeletedChannel()), new ChannelTopic(sessions.getSessionExpiredChannel())));
        listeners.addMessageListener(sessions, List.of(new PatternTopic(sessions.getSessionCreatedChannelPrefix() + "*")));
        listeners.afterPropertiesSet();
        listeners.start();
        try {
            sessions(sessions);
        } finally {
            listeners.destroy();
            sessions.destroy();
            connections.destroy();
        }
        System.out.println("Spring Session: all right");
        System.exit(0);
    }
}
