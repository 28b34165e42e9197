CREATE TABLE IF NOT EXISTS handoff_ticket (
  ticket_key      BLOB    NOT NULL PRIMARY KEY, -- from the business, compared byte by byte
  generation      INTEGER NOT NULL,             -- from 1, only grows
  source          BLOB    NOT NULL,             -- responsible until the ticket is taken
  addressee       BLOB    NOT NULL,             -- who may take; the holder while accepted
  reply_to        BLOB    NOT NULL,
  payload         BLOB    NOT NULL,
  ttl_ns          INTEGER NOT NULL,
  deadline        INTEGER NOT NULL,             -- by this database's clock, microseconds UTC
  state           BLOB    NOT NULL,
  token           BLOB    NOT NULL,             -- of this generation; empty: not taken. Kept after the end
  receipt_at      INTEGER NOT NULL,             -- microseconds UTC; 0: none
  receipt_status  BLOB    NOT NULL,
  receipt_summary BLOB    NOT NULL,
  receipt_failure BLOB    NOT NULL,
  artifacts       BLOB    NOT NULL              -- JSON array, each in base64
) STRICT
