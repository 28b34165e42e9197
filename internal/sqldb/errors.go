package sqldb

import (
	"reflect"
	"strings"
)

// A class says what an engine's error means for the statement or transaction that got it.
type class int

const (
	classUnknown   class = iota // no word from the engine: connection lost, driver fault
	classRefused                // the engine refused, for a reason that a repeat will not change
	classDuplicate              // unique key violated
	classTransient              // roll back and run the whole transaction again
)

// Duplicate reports whether err is the violation of a unique key.
func (d *Dialect) Duplicate(err error) bool { return d.classify(err) == classDuplicate }

// Transient reports whether the whole transaction that got err is to be run again.
func (d *Dialect) Transient(err error) bool { return d.classify(err) == classTransient }

// Refused reports whether err came from the engine itself, so that the statement
// certainly had no effect.
func (d *Dialect) Refused(err error) bool { return d.classify(err) != classUnknown }

func classifyMySQL(err error) class {
	code, ok := mysqlCode(err)
	switch {
	case !ok:
		return classUnknown
	case code == 1062:
		return classDuplicate
	case code == 1213, code == 1205, code == 1020: // deadlock, lock wait timeout, changed since read
		return classTransient
	}
	return classRefused
}

// Primary result codes of SQLite; the extended code keeps them in its low byte.
const (
	sqliteBusy   = 5
	sqliteLocked = 6
	sqliteIOErr  = 10

	sqliteConstraintPrimaryKey = 1555
	sqliteConstraintUnique     = 2067
	sqliteConstraintRowID      = 2579
)

func classifySQLite(err error) class {
	code, ok := sqliteCode(err)
	switch {
	case !ok, code&0xff == sqliteIOErr: // after an I/O error the file alone knows
		return classUnknown
	case code == sqliteConstraintPrimaryKey, code == sqliteConstraintUnique, code == sqliteConstraintRowID:
		return classDuplicate
	case code&0xff == sqliteBusy, code&0xff == sqliteLocked: // 517, a stale snapshot, is among them
		return classTransient
	}
	return classRefused
}

// classifyPostgreSQL goes by the SQLSTATE. What an ended connection or server says about
// itself (classes 08 and 57P) leaves open what became of a COMMIT.
func classifyPostgreSQL(err error) class {
	state, ok := sqlState(err)
	switch {
	case !ok, strings.HasPrefix(state, "08"), strings.HasPrefix(state, "57P"), state == "40003": // completion unknown
		return classUnknown
	case state == "23505":
		return classDuplicate
	case state == "40001", state == "40P01", state == "55P03": // not serializable, deadlock, lock wait timeout
		return classTransient
	}
	return classRefused
}

// mysqlCode finds the server's error number. go-sql-driver keeps it in a field and
// offers no method, so it is read by reflection: importing the driver here would tie
// every user of outbox and resourceguard to it.
func mysqlCode(err error) (code uint64, ok bool) {
	walk(err, func(err error) bool {
		v := reflect.ValueOf(err)
		if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
			return false
		}
		number := v.Elem().FieldByName("Number")
		if !number.IsValid() || number.Kind() != reflect.Uint16 || !v.Elem().FieldByName("SQLState").IsValid() {
			return false
		}
		code, ok = number.Uint(), true
		return true
	})
	return code, ok
}

// sqliteCode finds SQLite's extended result code: the Code method of modernc.org/sqlite
// or the ExtendedCode field of mattn/go-sqlite3. Many errors of a business have a Code of
// their own, which means something else: that method counts in the driver's type alone.
func sqliteCode(err error) (code int, ok bool) {
	walk(err, func(err error) bool {
		if c, has := err.(interface{ Code() int }); has && fromPackage(err, "modernc.org/sqlite") {
			code, ok = c.Code(), true
			return true
		}
		v := reflect.ValueOf(err)
		if v.Kind() != reflect.Struct {
			return false
		}
		if f := v.FieldByName("ExtendedCode"); f.IsValid() && f.CanInt() {
			code, ok = int(f.Int()), true
			return true
		}
		return false
	})
	return code, ok
}

// fromPackage reports whether the type of err, or what it points to, is declared there.
func fromPackage(err error, path string) bool {
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath() == path
}

// sqlState finds the five characters that pgx and lib/pq both offer by a method.
func sqlState(err error) (state string, ok bool) {
	walk(err, func(err error) bool {
		s, has := err.(interface{ SQLState() string })
		if has {
			state, ok = s.SQLState(), true
		}
		return has
	})
	return state, ok
}

// walk visits err and everything it wraps until visit reports true.
func walk(err error, visit func(error) bool) bool {
	if err == nil {
		return false
	}
	if visit(err) {
		return true
	}
	switch u := err.(type) {
	case interface{ Unwrap() error }:
		return walk(u.Unwrap(), visit)
	case interface{ Unwrap() []error }:
		for _, e := range u.Unwrap() {
			if walk(e, visit) {
				return true
			}
		}
	}
	return false
}
