//! x
#![allow(missing_docs)]
use fixtures::tables::{self, Cell};
use simulator::check;

fn run(name: &str, cells: Vec<Cell>) {
    let n = cells.len();
    let mut bad = 0;
    for cell in cells {
        let run = simulator::run(&cell.scenario);
        let failures = check::failures(&cell.scenario, &run);
        if !failures.is_empty() {
            bad += 1;
            println!("{name} {} | {}: {failures:?}", cell.row, cell.column);
        }
    }
    println!("{name}: {bad} of {n} differ");
    assert_eq!(bad, 0);
}
#[test]
fn replica() {
    run("replica", tables::replica_policies());
}
#[test]
fn job() {
    run("job", tables::job_policies());
}
#[test]
fn zero() {
    run("zero", tables::zero_replicas());
}
#[test]
fn restarts() {
    run("restarts", tables::restarts());
}
