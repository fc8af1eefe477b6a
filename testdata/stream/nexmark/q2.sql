CREATE TABLE result (auction BIGINT, price BIGINT) WITH ('connector' = 'blackhole');

INSERT INTO result
SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0;
