//! Runs kafka-backup of OSO as its command line does: `kafka-backup-peer backup|restore CONFIG.yaml`.
//!
//! The command line is not on crates.io, its engine is (`kafka-backup-core`).

use std::error::Error;

use kafka_backup_core::backup::BackupEngine;
use kafka_backup_core::{Config, ThreePhaseRestore};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().collect();
    let [_, what, path] = words.as_slice() else {
        return Err("usage: kafka-backup-peer backup|restore CONFIG.yaml".into());
    };
    let config: Config = serde_yaml::from_str(&std::fs::read_to_string(path)?)?;
    config.validate()?;
    match what.as_str() {
        "backup" => BackupEngine::new(config).await?.run().await?,
        "restore" => {
            let report = ThreePhaseRestore::new(config)?.run_all_phases().await?;
            for warning in &report.warnings {
                eprintln!("{warning}");
            }
            if !report.success {
                return Err(format!("{:?} {:?}", report.restore_report.errors, report.offset_reset_report).into());
            }
        }
        _ => return Err(format!("{what}: not known").into()),
    }
    Ok(())
}
