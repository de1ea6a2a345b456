package main

import (
	"debug/elf"
	"fmt"
	"os"
)

// machines are the ELF machines of Go's architectures that the image can be built for.
func machines() map[string]elf.Machine {
	return map[string]elf.Machine{
		"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "ppc64le": elf.EM_PPC64, "riscv64": elf.EM_RISCV, "s390x": elf.EM_S390,
	}
}

// readBinary reads a program and makes sure that it can run in an image that has nothing else: built for this architecture, and static.
func readBinary(path, arch string) ([]byte, error) {
	want, ok := machines()[arch]
	if !ok {
		return nil, fmt.Errorf("architecture %q is not known", arch)
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
			return nil, fmt.Errorf("%s is linked dynamically, and the image has no libraries: build it with CGO_ENABLED=0", path)
		}
	}
	return os.ReadFile(path)
}
