CREATE TABLE result (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, itemName STRING, seller BIGINT, category BIGINT) WITH ('connector' = 'blackhole');

INSERT INTO result
SELECT auction, bidder, price, channel, itemName, seller, category
FROM bid AS B INNER JOIN auction AS A ON B.auction = A.id
WHERE A.category = 10;
