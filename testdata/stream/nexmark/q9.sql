CREATE TABLE result (id BIGINT, itemName STRING, expires TIMESTAMP(3), seller BIGINT, auction BIGINT, bidder BIGINT, price BIGINT, bid_dateTime TIMESTAMP(3)) WITH ('connector' = 'blackhole');

INSERT INTO result
SELECT id, itemName, expires, seller, auction, bidder, price, bid_dateTime
FROM (
  SELECT A.*, B.auction, B.bidder, B.price, B.dateTime AS bid_dateTime,
    ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.dateTime ASC) AS rownum
  FROM auction A, bid B
  WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
)
WHERE rownum <= 1;
