// A pool with a map of words, from Go by cgo:
//
//	go run . FOLDER
//
// pkg-config must find pando.pc, and the system's loader libpando.so.
package main

/*
#cgo pkg-config: pando
#include <stdlib.h>
#include <pando.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"
)

// check frees an error of Pando and returns it as an error of Go.
func check(found *C.pando_error) error {
	if found == nil {
		return nil
	}
	defer C.pando_error_free(found)
	return errors.New(C.GoString(C.pando_error_message(found)))
}

// lend pins bytes for one call. A slice without bytes is NULL, which Pando allows.
func lend(pins *runtime.Pinner, bytes []byte) C.pando_slice {
	data := unsafe.SliceData(bytes)
	if len(bytes) > 0 {
		pins.Pin(data)
	}
	return C.pando_slice{data: (*C.uint8_t)(data), len: C.size_t(len(bytes))}
}

func put(words *C.pando_map, key, value []byte) error {
	var pins runtime.Pinner
	defer pins.Unpin()
	return check(C.pando_map_put(words, lend(&pins, key), lend(&pins, value)))
}

func get(words *C.pando_map, key []byte) ([]byte, error) {
	var pins runtime.Pinner
	defer pins.Unpin()
	var value C.pando_bytes
	var found C.bool
	defer C.pando_bytes_free(&value)
	if err := check(C.pando_map_get(words, lend(&pins, key), &value, &found)); err != nil || !bool(found) {
		return nil, err
	}
	return C.GoBytes(unsafe.Pointer(value.data), C.int(value.len)), nil
}

func run(folder string) (err error) {
	path := C.CString(filepath.Join(folder, "words.go.pando"))
	defer C.free(unsafe.Pointer(path))
	var pool *C.pando_pool
	if err := check(C.pando_pool_open_or_create(path, nil, &pool)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, check(C.pando_pool_free(pool))) }()
	name := C.CString("words")
	defer C.free(unsafe.Pointer(name))
	var words *C.pando_map
	if err := check(C.pando_pool_map(pool, name, nil, &words)); err != nil {
		return err
	}
	defer C.pando_map_free(words)

	if err := put(words, []byte("aspen"), []byte("one organism, many trees")); err != nil {
		return err
	}
	value, err := get(words, []byte("aspen"))
	if err != nil {
		return err
	}
	fmt.Printf("aspen: %s\n", value)
	if value, err = get(words, []byte("elm")); err != nil || value != nil {
		return fmt.Errorf("elm is there: %q, %w", value, err)
	}
	return nil
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: words FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
