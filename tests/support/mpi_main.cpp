#include <mpi.h>

#include <cstdio>
#include <heddle/core/tensor/runtime.hpp>

#include "runs_on.hpp"
#include "test.hpp"

// The main of dist_tests, which mpirun starts on 1, 2, 4 and 8 ranks: every rank runs the cases of that number
// (RunsOn), and the run fails on all ranks if it failed on one. Rank 0 prints the progress of the tests; another rank
// prints only its own failures.
namespace {

/// Prints failures with the rank, and keeps the ranks together: no rank starts a test before all have ended the last
/// one.
class RankListener : public testing::EmptyTestEventListener {
 public:
  RankListener(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

  // Kept here because GoogleTest holds the lock of current_test_info() while it reports a result.
  void OnTestStart(testing::TestInfo const& test) override {
    test_ = std::string(test.test_suite_name()) + "." + test.name();
    auto const* const declared = heddle::RunsOn::of(test.test_suite_name(), test.name());
    if (declared != nullptr && ranks_ < std::ranges::min(*declared)) {
      ADD_FAILURE() << test_ << " needs at least " << std::ranges::min(*declared) << " ranks";
    }
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
  int ranks_;
  std::string test_;
  bool skipped_ = false;
};

/// Leaves out the cases that run on other numbers of ranks. Returns false if a declaration names no case.
bool select_cases(int ranks) {
  auto unknown = heddle::RunsOn::declared();
  std::string excluded;
  auto const& all = *testing::UnitTest::GetInstance();
  for (int suite = 0; suite < all.total_test_suite_count(); ++suite) {
    testing::TestSuite const& cases = *all.GetTestSuite(suite);
    unknown.erase(cases.name());
    for (int index = 0; index < cases.total_test_count(); ++index) {
      std::string const name = cases.GetTestInfo(index)->name();
      std::string const full_name = std::string(cases.name()) + "." + name;
      unknown.erase(full_name);
      auto const* const declared = heddle::RunsOn::of(cases.name(), name);
      if (declared != nullptr && std::ranges::find(*declared, ranks) == declared->end()) {
        excluded += (excluded.empty() ? "-" : ":") + full_name;
      }
    }
  }
  if (!unknown.empty()) {
    std::fprintf(stderr, "RunsOn names %s, which is not a case here\n", unknown.begin()->first.c_str());
    return false;
  }
  if (GTEST_FLAG_GET(filter) == "*") {
    GTEST_FLAG_SET(filter, "*" + excluded);
  }
  return true;
}

int run_tests(int rank, int ranks) {
  if (!select_cases(ranks)) {
    return 1;
  }
  heddle::Runtime const runtime;
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  auto* const listener = new RankListener(rank, ranks);  // owned by GoogleTest
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
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int const failed = run_tests(rank, ranks);
  MPI_Finalize();
  return failed;
}
