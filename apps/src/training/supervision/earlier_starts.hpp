#pragma once

#include <cstdint>

namespace heddle {

/// How often Slurm has requeued this job, which starts it with the same command line (SLURM_RESTART_COUNT).
std::int64_t slurm_requeues();

/// The earlier starts of this training whose output is in the same log: requeues by Slurm, restarts by `heddle run`,
/// and those that a job script counts in HEDDLE_RESTARTS.
std::int64_t earlier_starts();

/// Lets the programs that this process starts from now on count one more in earlier_starts().
void count_restart();

/// Whether the job script queues the job again after exit code 75, which it declares by HEDDLE_REQUEUES=1.
bool job_requeues_itself();

}  // namespace heddle
