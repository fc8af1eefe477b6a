//! The examples run.
#[path = "../../examples/batch.rs"]
mod batch;
#[path = "../../examples/embed.rs"]
mod embed;
#[path = "../../examples/transfer.rs"]
mod transfer;
#[path = "../../examples/typed.rs"]
mod typed;

#[test]
fn every_example_program_runs() {
    embed::main().unwrap();
    batch::main().unwrap();
    transfer::main().unwrap();
    typed::main().unwrap();
}
