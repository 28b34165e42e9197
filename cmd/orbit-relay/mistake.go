package main

import (
	"errors"
	"io/fs"

	"github.com/go-sql-driver/mysql"
	"modernc.org/sqlite"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/outbox"
)

// isMistake tells which errors no repetition mends: a row that is not there or in another
// state, a bad argument, a right that the database user lacks.
func isMistake(err error) bool {
	for _, mistake := range []error{
		outbox.ErrNotFound, outbox.ErrState, outbox.ErrTooOld, outbox.ErrTooLate, outbox.ErrUnknownOutcome, outbox.ErrNoHold,
	} {
		if errors.Is(err, mistake) {
			return true
		}
	}
	var invalid *orbit.InvalidArgumentError
	return errors.As(err, &invalid) || isDenied(err)
}

// isWrongDatabase tells which errors of opening a database no repetition mends: a user or a
// file that is not there, a password that is wrong, an outbox that is missing or of another
// version. A server that cannot be reached or has no connection left is another matter.
func isWrongDatabase(err error) bool {
	const unknownDatabase = 1049
	var my *mysql.MySQLError
	var version *migrations.VersionError
	return isDenied(err) || errors.Is(err, fs.ErrNotExist) || errors.As(err, &version) ||
		errors.As(err, &my) && my.Number == unknownDatabase
}

// isDenied reports whether the database refuses the user the statement.
func isDenied(err error) bool {
	var my *mysql.MySQLError
	if errors.As(err, &my) {
		switch my.Number {
		case 1044, 1045, 1142, 1143, 1227, 1370:
			return true
		}
	}
	const readOnly, code = 8, 0xff
	var lite *sqlite.Error
	return errors.As(err, &lite) && lite.Code()&code == readOnly
}
