CREATE TABLE side_input (key BIGINT, `value` STRING, PRIMARY KEY (key) NOT ENFORCED) WITH ('connector' = 'duramen');
CREATE TABLE result (auction BIGINT, bidder BIGINT, price BIGINT, dateTime TIMESTAMP(3), `value` STRING) WITH ('connector' = 'blackhole');

INSERT INTO result
SELECT B.auction, B.bidder, B.price, B.dateTime, S.`value`
FROM bid AS B
JOIN side_input FOR SYSTEM_TIME AS OF B.p AS S ON MOD(B.auction, 10000) = S.key;
