CREATE TABLE result (auction BIGINT, bidder BIGINT, price BIGINT, dateTime TIMESTAMP(3), extra STRING, dt STRING, hm STRING)
WITH ('connector' = 'filesystem', 'path' = '/tmp/nexmark/q10', 'format' = 'csv');

INSERT INTO result
SELECT auction, bidder, price, dateTime, extra, DATE_FORMAT(dateTime, 'yyyy-MM-dd'), DATE_FORMAT(dateTime, 'HH:mm')
FROM bid;
