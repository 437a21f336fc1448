#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>
#include <heddle/core/tensor/runtime.hpp>
#include <string>

// The main of dist_tests, which mpirun starts on 1, 2, 4 and 8 ranks: every rank runs every test, and the run fails on
// all ranks if it failed on one. Rank 0 prints the progress of the tests; another rank prints only its own failures.
namespace {

/// Prints failures with the rank, and keeps the ranks together: no rank starts a test before all have ended the last
/// one.
class RankListener : public testing::EmptyTestEventListener {
 public:
  explicit RankListener(int rank) : rank_(rank) {}

  // Kept here because GoogleTest holds the lock of current_test_info() while it reports a result.
  void OnTestStart(testing::TestInfo const& test) override {
    test_ = std::string(test.test_suite_name()) + "." + test.name();
  }

  void OnTestPartResult(testing::TestPartResult const& result) override {
    std::string const place = std::string(result.file_name() == nullptr ? "" : result.file_name()) + ":" +
                              std::to_string(result.line_number());
    if (result.skipped()) {
      // A case must handle too few ranks itself: no skip may hide it on some layout.
      print_failure(place + ": a distributed test may not skip: " + result.message());
      skipped_ = true;
    } else if (result.failed() && rank_ != 0) {
      print_failure(place + ": " + result.message());
    }
  }

  void OnTestEnd(testing::TestInfo const& test) override {
    int const failed_here = test.result()->Failed() ? 1 : 0;
    int failed_anywhere = 0;
    MPI_Allreduce(&failed_here, &failed_anywhere, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (rank_ == 0 && failed_anywhere != 0 && failed_here == 0) {
      print_failure("passed here and failed on another rank");
    }
  }

  bool skipped() const { return skipped_; }

 private:
  void print_failure(std::string const& message) const {
    std::string const line = test_ + ", rank " + std::to_string(rank_) + ": " + message + "\n";
    std::fputs(line.c_str(), stderr);
  }

  int rank_;
  std::string test_;
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
