// findings.h: the errors found in a launch, with the threads that made them.
#pragma once
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace graphc_sim {

struct Index3 {
  std::uint32_t x, y, z;
};

// Read by native.py. `pc` is the address behind the instruction, 0 if the text says where.
struct Finding {
  std::uint64_t pc;
  Index3 block, thread;
  std::int32_t has_thread;
  char text[492];
};

inline std::string format(const char* pattern, ...) __attribute__((format(printf, 1, 2)));
inline std::string format(const char* pattern, ...) {
  char text[sizeof(Finding::text)];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text, sizeof text, pattern, arguments);
  va_end(arguments);
  return text;
}

// At most one finding per kind and place in the code, and few in all: the first ones matter.
class Findings {
 public:
  void clear() {
    seen_.clear();
    found_.clear();
  }
  void add(int kind, Finding finding, const std::string& text) {
    if (found_.size() >= most || !seen_.insert({kind, finding.pc}).second) return;
    std::snprintf(finding.text, sizeof finding.text, "%s", text.c_str());
    found_.push_back(finding);
  }
  const std::vector<Finding>& all() const { return found_; }

 private:
  static constexpr std::size_t most = 8;
  std::set<std::pair<int, std::uint64_t>> seen_;
  std::vector<Finding> found_;
};

}  // namespace graphc_sim
