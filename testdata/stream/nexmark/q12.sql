CREATE TABLE result (bidder BIGINT, bid_count BIGINT, starttime TIMESTAMP(3), endtime TIMESTAMP(3)) WITH ('connector' = 'blackhole');

INSERT INTO result
SELECT bidder, COUNT(*) AS bid_count, window_start, window_end
FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(p), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end;
