//! The program of the library.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    isotherm::main()
}
