CREATE TABLE result (seller STRING, avg_price BIGINT) WITH ('connector' = 'blackhole');

INSERT INTO result
SELECT Q.seller,
  AVG(Q.final) OVER (PARTITION BY Q.seller ORDER BY Q.dateTime ROWS BETWEEN 10 PRECEDING AND CURRENT ROW)
FROM (
  SELECT MAX(B.price) AS final, A.seller, B.dateTime
  FROM auction AS A, bid AS B
  WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
  GROUP BY A.id, A.seller, B.dateTime
) AS Q;
