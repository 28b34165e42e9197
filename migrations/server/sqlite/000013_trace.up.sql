-- additive: a server of release 12 neither reads nor writes the new column

-- 提交者的链路标识，空为没有
ALTER TABLE task ADD COLUMN traceparent BLOB NOT NULL DEFAULT x'';
