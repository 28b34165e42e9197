-- additive: a server of release 12 neither reads nor writes the new column

ALTER TABLE task
    ADD COLUMN traceparent VARBINARY(55) NOT NULL DEFAULT '' COMMENT '提交者的链路标识，空为没有';
