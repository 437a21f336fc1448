#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>
#include <heddle/core/runtime.hpp>
#include <string>

// The main of dist_tests, which mpirun starts on 1, 2, 4 and 8 ranks: every rank runs every test, and the run fails on
// all ranks where it failed on one. Rank 0 prints the course of the tests; another rank prints only its own failures.
namespace {

void print_failure(char const* test, int rank, std::string const& message) {
  std::string const line = std::string(test) + ", rank " + std::to_string(rank) + ": " + message + "\n";
  std::fputs(line.c_str(), stderr);
}

std::string name_of(testing::TestInfo const* test) {
  return test == nullptr ? "outside a test" : std::string(test->test_suite_name()) + "." + test->name();
}

/// Prints failures with the rank, and keeps the ranks together: no rank starts a test before all have ended the last
/// one.
class RankListener : public testing::EmptyTestEventListener {
 public:
  explicit RankListener(int rank) : rank_(rank) {}

  void OnTestPartResult(testing::TestPartResult const& result) override {
    // Too few ranks for a case is for the test to handle, or a failure: nothing is skipped unseen on some layout.
    if (result.skipped() || (result.failed() && rank_ != 0)) {
      char const* const file = result.file_name() == nullptr ? "unknown file" : result.file_name();
      print_failure(name_of(testing::UnitTest::GetInstance()->current_test_info()).c_str(), rank_,
                    std::string(file) + ":" + std::to_string(result.line_number()) +
                        (result.skipped() ? ": a distributed test may not skip: " : ": ") + result.message());
      skipped_ = skipped_ || result.skipped();
    }
  }

  void OnTestEnd(testing::TestInfo const& test) override {
    int const failed_here = test.result()->Failed() ? 1 : 0;
    int failed_anywhere = 0;
    MPI_Allreduce(&failed_here, &failed_anywhere, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (rank_ == 0 && failed_anywhere != 0 && failed_here == 0) {
      print_failure(name_of(&test).c_str(), rank_, "passed here and failed on another rank");
    }
  }

  bool skipped() const { return skipped_; }

 private:
  int rank_;
  bool skipped_ = false;
};

int run_tests(int rank) {
  heddle::Runtime const runtime;
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  auto* const listener = new RankListener(rank);  // owned by GoogleTest
  listeners.Append(listener);
  if (rank != 0) {
    delete listeners.Release(listeners.default_result_printer());
  }
  int const tests_failed = RUN_ALL_TESTS();
  int const failed_here = tests_failed != 0 || listener->skipped() ? 1 : 0;
  int failed_anywhere = 0;
  MPI_Allreduce(&failed_here, &failed_anywhere, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return failed_anywhere;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  int const failed = run_tests(rank);
  MPI_Finalize();
  return failed;
}
