def refuted(): return None
