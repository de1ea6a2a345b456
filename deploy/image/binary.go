package main

import (
	"debug/elf"
	"fmt"
	"os"
)

// machines returns the ELF machine of each supported GOARCH.
func machines() map[string]elf.Machine {
	return map[string]elf.Machine{
		"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "ppc64le": elf.EM_PPC64,
		"riscv64": elf.EM_RISCV, "s390x": elf.EM_S390,
	}
}

// readBinary reads an executable. It must be built for arch and linked
// statically, because the image has no libraries.
func readBinary(path, arch string) ([]byte, error) {
	want, ok := machines()[arch]
	if !ok {
		return nil, fmt.Errorf("architecture %q is not supported", arch)
	}
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	defer f.Close()
	if f.Machine != want {
		return nil, fmt.Errorf("%s is a program for %v, not for %s", path, f.Machine, arch)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return nil, fmt.Errorf("%s is linked dynamically: build it with CGO_ENABLED=0", path)
		}
	}
	return os.ReadFile(path)
}
